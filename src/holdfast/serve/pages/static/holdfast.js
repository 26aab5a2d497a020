// Mission Control: replaces changed rows in place, and adds keys. Every page works without this file.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const typing = (at) => at && at.matches("input, textarea, select");
  const FOCUSABLE = "a, button, summary, [tabindex]";

  // --- live rows ------------------------------------------------------------------------------------------------

  // A document that the browser makes of a response runs no script, and no string is parsed as HTML.
  const load = (url) => new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("GET", url);
    request.responseType = "document";
    request.onload = () => (request.status === 200 && request.response ? done(request.response) : failed(request.status));
    request.onerror = () => failed(0);
    request.send();
  });

  let before = "", asking = null; // the key before, and the button that a `y` would press

  // Replaces an element by its new form. A field in use stays, and what is being confirmed; focus and open details survive.
  const swap = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    const at = document.activeElement, inside = old.contains(at);
    if ((inside && typing(at)) || (asking && old.contains(asking))) return;
    if (all("input:not([type=hidden]), textarea", old).some((field) => field.value !== field.defaultValue)) return;
    const index = inside ? all(FOCUSABLE, old).indexOf(at) : -1;
    const next = document.importNode(fresh, true);
    const opened = all("details", next);
    all("details", old).forEach((each, place) => { if (opened[place]) opened[place].open = each.open; });
    old.replaceWith(next);
    if (inside) (all(FOCUSABLE, next)[index] || (next.matches("[tabindex]") ? next : $(FOCUSABLE, next)) || $("main")).focus();
  };

  // A card that is no longer in the list was answered elsewhere: it stays, and shows by whom and when.
  const gone = (row) => {
    if (!row.dataset.href) { if (!row.contains(document.activeElement)) row.remove(); return; }
    if (row.classList.contains("closed")) return;
    row.classList.add("closed");
    load(row.dataset.href).then((page) => { const fresh = page.getElementById(row.id); if (fresh) swap(row, fresh); }, () => {});
  };

  const merge = (page) => {
    let waiting = 0;
    const end = innerHeight + scrollY > document.body.scrollHeight - 120;
    all("#places, #frame-state, #stopped, #h-needs, [data-swap]").forEach((old) => {
      const fresh = page.getElementById(old.id);
      if (fresh) swap(old, fresh);
    });
    all("[data-list]").forEach((list) => {
      const fresh = page.getElementById(list.id), tail = list.dataset.list === "tail";
      if (!fresh) { if (!tail) [...list.children].forEach(gone); return; }
      const known = new Set([...list.children].map((row) => row.id));
      [...list.children].forEach((row) => {
        const next = page.getElementById(row.id);
        if (next) swap(row, next);
        else if (!tail) gone(row);
      });
      const added = [...fresh.children].filter((row) => !known.has(row.id));
      if (tail) {
        list.append(...added.map((row) => document.importNode(row, true)));
        while (list.children.length > 600) list.firstElementChild.remove();
        if (end && added.length) scrollTo(0, document.body.scrollHeight);
      } else waiting += added.length;
    });
    const button = $("#fresh"), words = `${waiting} new`;
    if (button) {
      button.hidden = !waiting;
      if (button.textContent !== words) button.textContent = words;
    }
    document.title = page.title;
    online(true);
  };

  const live = document.body.dataset.live;
  let source = null, cut = 0, strip = null, busy = false, again = false, due = 0, shown = document.body.dataset.at;

  const online = (on) => {
    const sign = $("#link");
    if (on) {
      clearTimeout(cut);
      cut = 0;
      if (strip) strip.remove();
      strip = null;
      shown = new Date().toTimeString().slice(0, 8);
      if (sign) { sign.className = "link live"; sign.textContent = `live ${shown}`; }
    } else if (!cut) cut = setTimeout(() => {
      if (sign) { sign.className = "link"; sign.textContent = "reconnecting"; }
      strip = document.createElement("div");
      strip.className = "strip";
      strip.setAttribute("role", "status");
      strip.textContent = `Showing ${shown}, reconnecting. Buttons still work.`;
      $("header").after(strip);
    }, 3000);
  };

  // At most one refresh at a time, and a pause after it that grows with the time that the page took.
  const refresh = () => {
    again = busy;
    if (busy) return;
    busy = true;
    const began = performance.now();
    load(location.href.split("#")[0]).then(merge, (status) => { if (status === 401) location.reload(); else online(false); }).finally(() => {
      setTimeout(() => { busy = false; if (again) refresh(); }, Math.max(500, 4 * (performance.now() - began)));
    });
  };

  // A session is followed; lists, which change with every session, are looked at again after a while.
  const soon = () => { if (!due) due = setTimeout(() => { due = 0; refresh(); }, $("[data-list=tail]") ? 0 : 2000); };
  const close = () => { if (source) source.close(); source = null; clearTimeout(cut); clearTimeout(due); cut = due = 0; };
  const connect = () => {
    if (!live || source || document.hidden) return;
    source = new EventSource("/holdfast/v1/stream");
    source.onopen = refresh;
    source.addEventListener("status", refresh);
    source.addEventListener("changed", soon);
    source.onerror = () => {
      online(false);
      if (source && source.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, 3000); }
    };
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", connect);

  // The state of a session at an event of a long log arrives after the page.
  const later = $("[data-load]");
  if (later) load(later.dataset.load).then((page) => { const fresh = page.getElementById(later.id); if (fresh) swap(later, fresh); }, () => {});

  // --- forms ----------------------------------------------------------------------------------------------------

  document.addEventListener("click", (event) => { if (event.target.closest("#fresh")) location.assign(location.pathname + location.search); });
  document.addEventListener("submit", (event) => { // a form is sent once
    const form = event.target;
    if (form.method === "post") setTimeout(() => all("button", form).forEach((each) => { each.disabled = true; }));
  });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  // An action that is longer than the screen is approved only after its end was shown.
  const held = $("[data-after-end]"), action = $("pre.action");
  if (held && action && action.getBoundingClientRect().bottom > innerHeight) {
    const buttons = all("button[value=approve]").filter((each) => !each.closest(".deny"));
    buttons.forEach((each) => { each.disabled = true; each.title = "Read the action to its end first"; });
    const end = document.createElement("span");
    action.append(end);
    new IntersectionObserver((found, watcher) => {
      if (!found.some((each) => each.isIntersecting)) return;
      watcher.disconnect();
      buttons.forEach((each) => { each.disabled = false; each.title = ""; });
    }).observe(end);
  }

  // --- keys -----------------------------------------------------------------------------------------------------

  const ROWS = "[data-stop], .row, #rows tr, #crit tr, .ev";
  const current = () => document.activeElement && document.activeElement.closest(ROWS);
  const focus = (row) => {
    const to = row.matches("[data-stop]") ? row : $("a, summary", row);
    if (!to) return;
    to.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };
  const move = (by) => {
    const rows = all(ROWS), at = rows.indexOf(current());
    if (rows.length) focus(rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))]);
  };
  const card = () => { const at = current(); return at && at.matches(".card") ? at : $(".card[data-stop]"); };

  const ask = (on, button) => {
    all(".confirm").forEach((each) => each.remove());
    asking = button;
    if (!button) return;
    const words = document.createElement("p");
    words.className = "confirm";
    words.setAttribute("role", "status");
    words.textContent = "Approve this? Press y. Any other key leaves it.";
    $(".answers", on).prepend(words);
    on.focus({ preventScroll: true });
    words.scrollIntoView({ block: "nearest" });
  };

  const KEYS = {
    g: () => { before = "g"; },
    j: () => move(1),
    k: () => move(-1),
    o: () => { const row = current(), to = row && $(".rowlink, a", row); if (to) to.click(); },
    a: () => {
      const on = card(), button = on && $("[data-act=approve]", on), words = on && $(".answer textarea", on);
      if (words) words.focus();
      else if (button && !button.disabled) ask(on, button);
      else if (on && $("[data-act=open]", on)) $("[data-act=open]", on).click();
    },
    d: () => {
      const on = card(), deny = on && $(".deny", on);
      if (deny) { deny.open = true; $("input[name=words]", deny).focus(); }
    },
    s: () => { const field = $("#steer textarea"); if (field) field.focus(); },
    f: () => { const fork = $("[data-act=fork]"); if (fork) fork.focus(); },
    G: () => { const to = $("#live-end, #end"); if (!to) return; if (to.href) to.click(); else to.scrollIntoView(); },
    n: () => location.assign("/start"),
    x: () => { const read = $("[data-act=read]"); if (read) read.focus(); },
    "/": () => $("input[type=search]").focus(),
    "?": () => { const keys = $("#keys"); if (keys) keys.showModal(); },
    "[": () => { const to = $("#older"); if (to) to.click(); },
    "]": () => { const to = $("#newer"); if (to) to.click(); },
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const at = document.activeElement, key = event.key, button = asking, was = before;
    before = "";
    ask(null, null);
    if (key === "Escape") { if (typing(at)) at.blur(); return; }
    if (typing(at) || $("dialog[open]")) return;
    if (button && key === "y") {
      event.preventDefault();
      if (button.isConnected && !button.disabled) button.click();
      return;
    }
    const place = was === "g" && $(`.places a[data-key="${CSS.escape(key)}"]`);
    if (place) { event.preventDefault(); location.assign(place.href); return; }
    if (Object.hasOwn(KEYS, key)) { event.preventDefault(); KEYS[key](); }
  });
})();
