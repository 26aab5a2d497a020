// Subscribes this browser to notices: the page's form carries the subscription to the server.
"use strict";
(() => {
  const form = document.querySelector("#subscribe"), words = document.querySelector("#subscribe-said");
  if (!form) return;
  const say = (text) => { words.textContent = text; };
  if (!("serviceWorker" in navigator && "PushManager" in window)) {
    say(isSecureContext ? "This browser has no Web Push. On an iPhone, add this page to the home screen first."
      : "Browsers allow notices only on https:// and on localhost.");
    return;
  }
  const text = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  // The only address of a script that the content policy lets a page make.
  const only = { createScriptURL: (url) => { if (url === "/worker.js") return url; throw new TypeError(url); } };
  const worker = window.trustedTypes ? trustedTypes.createPolicy("worker", only).createScriptURL("/worker.js") : "/worker.js";
  const button = form.querySelector("button");
  button.disabled = false;
  form.addEventListener("submit", (event) => {
    if (form.elements.endpoint.value) return;
    event.preventDefault();
    say("Asking the browser…");
    navigator.serviceWorker.register(worker)
      .then(() => navigator.serviceWorker.ready)
      .then((ready) => ready.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: form.dataset.key }))
      .then((made) => {
        form.elements.endpoint.value = made.endpoint;
        form.elements.p256dh.value = text(made.getKey("p256dh"));
        form.elements.auth.value = text(made.getKey("auth"));
        form.elements.label.value = navigator.userAgent.slice(0, 120);
        form.submit();
      })
      .catch((error) => { button.disabled = false; say(`The browser refused: ${error.message}. Check that notifications are allowed for this site, and try again.`); });
  });
})();
