// Looks at the page again every few seconds and replaces the parts that changed.
"use strict";
(() => {
  const main = document.getElementById("content");
  const every = Number(main.dataset.every || 0) * 1000;
  if (!every) return;
  const away = document.getElementById("away");
  const said = document.getElementById("said");
  const pause = document.getElementById("pause");
  // as the server wrote it: the browser's own serialisation of a live element may differ
  const shown = new Map();
  let tag = "";
  let since = 0;
  let paused = false;
  let timer = 0;
  let title = document.title;

  const parts = (root) => Array.from(root.querySelectorAll("[id]")).filter((one) => one.parentElement === root);
  parts(main).forEach((one) => shown.set(one.id, one.outerHTML));

  // what a reader works in stays as it is: a field with the focus, a selection
  const inUse = (one) => {
    const focus = document.activeElement;
    if (focus && one.contains(focus) && /^(INPUT|SELECT)$/.test(focus.tagName)) return true;
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && one.contains(selection.anchorNode));
  };

  const replace = (old, fresh) => {
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    const path = focus && (focus.getAttribute("href") ? `a[href="${CSS.escape(focus.getAttribute("href"))}"]`
      : focus.getAttribute("role") === "region" ? ".table" : focus.tagName === "SUMMARY" ? "summary" : "");
    const scrolled = Array.from(old.querySelectorAll(".table")).map((one) => [one.scrollLeft, one.scrollTop]);
    const open = Array.from(old.querySelectorAll("details")).map((one) => one.open);
    old.replaceWith(fresh);
    fresh.querySelectorAll("details").forEach((one, index) => { one.open = open[index] || false; });
    fresh.querySelectorAll(".table").forEach((one, index) => {
      if (scrolled[index]) [one.scrollLeft, one.scrollTop] = scrolled[index];
    });
    const again = path && fresh.querySelector(path);
    if (again) again.focus({ preventScroll: true });
  };

  const take = (page) => {
    const next = page.getElementById("content");
    if (!next) return;
    const fresh = parts(next);
    const ids = new Set(fresh.map((one) => one.id));
    parts(main).forEach((one) => {
      if (!ids.has(one.id) && !inUse(one)) one.remove();
    });
    let before = null;
    fresh.forEach((one) => {
      const old = document.getElementById(one.id);
      const text = one.outerHTML;
      if (!old) {
        if (before) before.after(one);
        else main.append(one);
        before = one;
      } else if (text === shown.get(one.id) || inUse(old)) {
        before = old;
        return;
      } else {
        replace(old, one);
        before = one;
      }
      shown.set(one.id, text);
    });
    const told = Array.from(main.querySelectorAll(".verdict .word")).map((one) => one.textContent.trim()).join(", ");
    if (said.dataset.told !== undefined && said.dataset.told !== told) said.textContent = `Now: ${told}`;
    said.dataset.told = told;
    document.title = title = page.title;
    document.getElementById("asof").innerHTML = page.getElementById("asof").innerHTML;
    main.dataset.every = next.dataset.every || "0";
  };

  const look = async () => {
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout(12000) });
      if (answer.status !== 304) {
        const text = await answer.text();
        if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
        tag = answer.headers.get("ETag") || "";
        take(new DOMParser().parseFromString(text, "text/html"));
      }
      if (since) document.title = title;
      since = 0;
      away.hidden = true;
    } catch {
      since = since || Date.now();
      const seconds = Math.round((Date.now() - since) / 1000);
      away.textContent = `This page is old: its server has not answered for ${seconds} s. The process has ended, or the network is down.`;
      away.hidden = false;
      document.title = "no answer - eomirror";
    }
  };

  const next = () => {
    const wait = Number(main.dataset.every) * 1000;
    if (!paused && wait) timer = setTimeout(async () => { if (!document.hidden) await look(); next(); }, wait);
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    pause.setAttribute("aria-pressed", String(paused));
    clearTimeout(timer);
    next();
  });
  next();
})();
