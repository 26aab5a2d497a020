// Shows a notice that arrives while no page is open, and opens its page when it is touched. It answers nothing.
"use strict";
addEventListener("push", (event) => {
  const told = event.data.json();
  event.waitUntil(registration.showNotification(told.title, {
    body: told.body, tag: told.tag, icon: "/static/icon.svg", data: told.path, requireInteraction: true,
  }));
});
addEventListener("notificationclick", (event) => {
  event.notification.close();
  const url = new URL(event.notification.data, location.origin);
  if (url.origin === location.origin) event.waitUntil(clients.openWindow(url.href));
});
