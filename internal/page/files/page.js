// Shows the status in the document, at each event.
"use strict";
(function () {
  const $ = (id) => document.getElementById(id);
  const { size, age, short } = tryst;
  const history = new tryst.History(300);
  const state = { status: null, at: 0, paused: false, by: "", reversed: false, all: false, filter: "" };
  const fewPeers = 100, mapPeers = 16;

  // make makes an element. Texts come from peers: they are only ever set as text.
  function make(name, attributes, ...children) {
    const e = document.createElement(name);
    set(e, attributes);
    e.append(...children);
    return e;
  }
  function set(e, attributes) { for (const [k, v] of Object.entries(attributes || {})) if (v !== undefined && v !== false) e.setAttribute(k, v); }
  function svg(name, attributes, ...children) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    set(e, attributes);
    e.append(...children);
    return e;
  }
  // text sets the text of an element if it differs, so that screen readers hear changes alone.
  function text(e, s) { if (e.textContent !== s) e.textContent = s; }

  // rows shows a list in a table: rows stay, with the focus in them, as long as their key does.
  function rows(id, list, key, columns, empty) {
    const body = $(id), old = new Map();
    for (const tr of body.children) old.set(tr.dataset.key, tr);
    let before = null;
    list.forEach((item) => {
      const k = key(item);
      let tr = old.get(k);
      if (tr) old.delete(k); else { tr = make("tr", {}); tr.dataset.key = k; }
      columns(item).forEach((c, i) => cell(tr, i, c));
      while (tr.children.length > columns(item).length) tr.lastChild.remove();
      const next = before ? before.nextSibling : body.firstChild;
      if (next !== tr) body.insertBefore(tr, next);
      before = tr;
    });
    for (const tr of old.values()) tr.remove();
    if (list.length === 0) {
      const tr = make("tr", {}, make("td", { class: "empty", colspan: "9" }, empty));
      tr.dataset.key = "";
      body.append(tr);
    }
  }
  function cell(tr, i, c) {
    let td = tr.children[i];
    if (!td) { td = make("td", {}); tr.append(td); }
    const name = c.class || "";
    if (td.className !== name) td.className = name;
    if (c.open) {
      let b = td.firstChild;
      if (!b || b.nodeName !== "BUTTON") { td.replaceChildren(b = make("button", { type: "button", class: "key" })); b.addEventListener("click", () => b.show()); }
      b.show = c.open;
      text(b, c.text);
    } else if (c.bar !== undefined) {
      let b = td.querySelector(".bar");
      if (!b) td.replaceChildren(b = bar());
      setBar(b, c.bar, c.text, c.label);
    } else text(td, c.text);
    if (c.title !== undefined && td.title !== c.title) td.title = c.title;
  }
  const plain = (s, name) => ({ text: String(s), class: name });
  const num = (s) => ({ text: String(s), class: "num" });
  const bytes = (n) => num(n === 0 ? "–" : size(n));
  function bar() { return make("div", { class: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" }, make("i", {}), make("span", {})); }
  function setBar(b, part, words, label) {
    const percent = Math.round(100 * Math.max(0, Math.min(1, part)));
    b.children[0].style.width = percent + "%";
    text(b.children[1], words);
    b.setAttribute("aria-valuenow", percent);
    b.setAttribute("aria-label", label);
    b.classList.toggle("hot", label !== "" && b.dataset.gauge !== undefined && percent >= 90);
  }

  function detail(title, pairs) {
    text($("detail-title"), title);
    $("detail-text").replaceChildren(...pairs.filter(([, v]) => v !== undefined && v !== "").flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, String(v))]));
    $("copy").onclick = () => navigator.clipboard && navigator.clipboard.writeText(pairs.map(([k, v]) => k + ": " + v).join("\n"));
    $("detail").showModal();
  }
  const when = (t) => t ? new Date(t).toLocaleString() : "";

  function show(s) {
    const p = s.process;
    document.title = short(p.task) + (s.waits.oldest.length ? " (" + s.waits.total + " waiting)" : "") + " – Tryst";
    text($("task"), p.task);
    const badge = $("state");
    text(badge, p.state);
    badge.className = "badge " + (p.state === "ready" ? "good" : "warn");
    badge.title = p.reason || "";
    facts(s);
    count("waits", s.waits.total, s.waits.oldest.some((w) => w.seconds >= 5));
    count("peers", s.peers.filter((x) => x.state === "up").length + "/" + s.peers.length, s.peers.some((x) => x.state === "silent" || x.state === "down" && x.error));
    count("pulls", s.publish.total_pulls); count("steps", s.steps.total);
    count("groups", s.groups.total, s.groups.oldest.some((g) => !g.complete)); count("warnings", s.warnings.length, s.warnings.some((w) => w.level === "ERROR"));
    waits(s); traffic(s); peers(s); pulls(s); steps(s); groups(s); limits(s); warnings(s); settings(s);
  }
  function count(id, n, hot) { const b = $("n-" + id); text(b, String(n)); b.classList.toggle("hot", Boolean(hot)); }
  function facts(s) {
    const p = s.process;
    pairs($("facts"), [["address", p.address], ["up", age(p.uptime_seconds)], ["transport", p.transport], ["version", p.build.version], ["host", p.host], ["pid", p.pid]], true);
  }
  // pairs shows names and values, and keeps the elements.
  function pairs(dl, list, boxed) {
    const key = list.map(([k]) => k).join("\n");
    if (dl.dataset.key !== key) {
      dl.dataset.key = key;
      dl.replaceChildren(...list.flatMap(([k]) => { const two = [make("dt", {}, k), make("dd", {})]; return boxed ? [make("div", {}, ...two)] : two; }));
    }
    const values = dl.querySelectorAll("dd");
    list.forEach(([, v], i) => text(values[i], String(v)));
  }

  function waits(s) {
    text($("waits-note"), s.waits.oldest.length === 0 ? "" : (s.waits.complete ? "" : "at least ") + s.waits.total + ", the longest first; choose a key for all of it");
    rows("waits-rows", s.waits.oldest, (w) => [w.kind, w.waiter, w.on, w.key, w.step, w.frame, w.iteration, w.since].join("|"), (w) => [
      { text: age(w.seconds), class: "num " + (w.seconds >= 5 ? "warn" : "") }, { text: w.key, class: "key", open: () => showWait(w) }, plain(w.step, "num"),
      plain(short(w.waiter), "name"), plain(short(w.on), "name"), plain(w.detail, "why"),
    ], "Nothing waits.");
  }
  function showWait(w) {
    const peer = state.status.peers.find((p) => p.task === w.on || p.task === w.waiter);
    detail(w.key, [["step", w.step], ["waits for", age(w.seconds)], ["since", when(w.since)], ["who waits", w.waiter], ["on whom", w.on], ["what is missing", w.detail], ["kind", w.kind],
      ["frame", w.frame], ["iteration", w.iteration], ["link", peer && peer.route + ", " + peer.state + (peer.error ? ": " + peer.error : "")], ["address of the peer", peer && peer.address]]);
  }

  let plot = null, drawn = "";
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
  function traffic(s) {
    history.add(s);
    rows("traffic-rows", s.routes, (r) => r.route, (r) => [plain(r.route), bytes(r.sent_bytes_per_second), bytes(r.received_bytes_per_second), bytes(r.sent_bytes), bytes(r.received_bytes)], "Nothing was sent or received.");
    draw();
  }
  function draw() {
    const box = $("plot"), names = [...history.routes.keys()], key = names.join() + box.clientWidth + matchMedia("(prefers-color-scheme: dark)").matches;
    const data = [history.times, ...names.flatMap((n) => [history.routes.get(n).sent, history.routes.get(n).received])];
    if (plot && key === drawn) return plot.setData(data);
    drawn = key;
    if (plot) plot.destroy();
    const ink = style("--dim"), line = style("--line");
    const value = (_, v) => v == null ? "–" : size(v) + "/s";
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    plot = new uPlot({
      width: box.clientWidth, height: 220, data, cursor: { y: false }, scales: { y: { range: (_, lo, hi) => [0, Math.max(hi, 1000)] } },
      axes: [axis, Object.assign({}, axis, { size: 70, values: (_, list) => list.map((v) => v === 0 ? "0" : size(v)) })],
      series: [{}].concat(names.flatMap((n) => [
        { label: n + " sent", stroke: style("--" + n), width: 2, value, points: { show: false } },
        { label: n + " received", stroke: style("--" + n), width: 2, dash: [5, 4], value, points: { show: false } },
      ])),
    }, data, box);
  }

  function peers(s) {
    const list = tryst.peers(s.peers, state.filter, state.by, state.reversed);
    const shown = state.all ? list : list.slice(0, fewPeers);
    text($("peers-note"), list.length === s.peers.length ? "" : list.length + " of " + s.peers.length);
    $("more").hidden = shown.length === list.length;
    text($("more"), "Show all " + list.length);
    rows("peers-rows", shown, (p) => p.task, (p) => [
      { text: short(p.task), class: "name", open: () => showPeer(p) }, plain(p.state, p.state), plain(p.route), bytes(p.sent_bytes_per_second), bytes(p.received_bytes_per_second), num(p.waits || "–"), plain(p.error || p.reason || "", "why"),
    ], s.peers.length ? "No peer matches." : "This process has no peers.");
    map(s);
  }
  function showPeer(p) {
    detail(p.task, [["state", p.state], ["since", when(p.since)], ["route", p.route], ["device", p.device], ["address", p.address], ["sent", size(p.sent_bytes)], ["received", size(p.received_bytes)], ["breaks", p.breaks], ["reason", p.reason], ["error", p.error]]);
  }
  // map draws who sends to whom: this process in the middle, a line for each direction, as thick as its rate.
  function map(s) {
    const c = tryst.circle(s.peers, mapPeers), r = 118, mid = 160, drawing = [];
    for (const n of c.nodes) {
      const x = mid + r * n.x, y = mid + r * n.y, color = n.peer.state === "up" ? "var(--" + n.peer.route + ",var(--dim))" : n.peer.state === "down" || n.peer.state === "silent" ? "var(--bad)" : "var(--warn)";

      if (n.peer.state !== "up") drawing.push(svg("line", { x1: mid, y1: mid, x2: x, y2: y, stroke: color, "stroke-width": 1, "stroke-dasharray": "3 4" }));
      else if (!n.sent && !n.received) drawing.push(svg("line", { x1: mid, y1: mid, x2: x, y2: y, stroke: "var(--line)", "stroke-width": 1.5 }));
      if (n.sent) drawing.push(arrow(mid, mid, x, y, 4, n.sent, color));
      if (n.received) drawing.push(arrow(x, y, mid, mid, 4, n.received, color));

      const anchor = n.x > 0.3 ? "start" : n.x < -0.3 ? "end" : "middle";
      drawing.push(svg("circle", { cx: x, cy: y, r: 5, fill: color }), svg("text", { x: x + 10 * n.x, y: y + 14 * n.y + 4, "text-anchor": anchor }, short(n.peer.task)));
    }
    drawing.push(svg("circle", { cx: mid, cy: mid, r: 8, class: "me" }));
    const words = tryst.mapText(s.peers) + (c.more > 0 ? " " + c.more + " more peers are in the table." : "");
    $("map").replaceChildren(svg("svg", { viewBox: "-50 0 420 320", role: "img", "aria-labelledby": "map-text" }, ...drawing));
    text($("map-text"), words);
  }
  // arrow draws a line with a head, beside the straight way, so that the two directions are two lines.
  function arrow(x1, y1, x2, y2, aside, width, color) {
    const dx = x2 - x1, dy = y2 - y1, long = Math.hypot(dx, dy), ux = dx / long, uy = dy / long, gap = 12;
    const ax = x1 - uy * aside + ux * gap, ay = y1 + ux * aside + uy * gap, bx = x2 - uy * aside - ux * gap, by = y2 + ux * aside - uy * gap, h = 5 + width;
    return svg("g", { stroke: color, "stroke-width": width }, svg("line", { x1: ax, y1: ay, x2: bx, y2: by }),
      svg("path", { d: `M${bx - ux * h - uy * h * 0.6} ${by - uy * h + ux * h * 0.6}L${bx} ${by}L${bx - ux * h + uy * h * 0.6} ${by - uy * h - ux * h * 0.6}`, "stroke-width": Math.min(width, 2.5) }));
  }

  function pulls(s) {
    rows("publications-rows", s.publish.publications, (p) => p.name + "@" + p.version, (p) => [plain(p.name, "key"), plain(p.version.slice(0, 12) + (p.current ? "" : " (replaced)")), num(p.tensors), bytes(p.bytes), num(p.pulls), num(p.watchers)], "Nothing is published.");
    rows("pulls-rows", s.publish.pulls, (p) => [p.puller, p.publication, p.version, p.since].join("|"), (p) => [
      plain(short(p.puller), "name"), plain(p.publication, "key"), plain(p.address), num(age(p.seconds)),
      { bar: p.bytes ? p.sent / p.bytes : 1, text: size(p.sent) + " of " + size(p.bytes), label: "pull of " + p.publication + " by " + short(p.puller) },
    ], "No pulls are under way.");
  }
  function steps(s) {
    const shown = s.steps.oldest.filter((x) => x.waits || x.unreceived).concat(s.steps.oldest.filter((x) => !x.waits && !x.unreceived)).slice(0, Math.max(8, Math.min(20, s.steps.oldest.filter((x) => x.waits || x.unreceived).length)));
    text($("steps-note"), s.steps.total > shown.length ? shown.length + " of " + s.steps.total : "");
    rows("steps-rows", shown, (x) => x.step, (x) => [num(x.step), num(age(x.seconds)), plain(x.begun ? "yes" : "no"), num(x.waits || "–"), num(x.unreceived || "–"), plain((x.unreceived_keys || []).join(", "), "why")], "No step is under way.");
  }
  function groups(s) {
    rows("groups-rows", s.groups.oldest.slice(0, 20), (g) => String(g.key), (g) => [num(g.key), num(g.joined + " of " + g.size), num(age(g.seconds)),
      g.complete ? plain("complete", "good") : plain((g.missing || []).map(short).join(", ") || (g.size - g.joined) + " members", "warn")], "No groups.");
    rows("sessions-rows", s.sessions.oldest, (x) => x.handle, (x) => [plain(x.handle || "(none)", "key"), plain(x.master ? short(x.master) : ""), num(x.graphs), num(x.steps), num(x.running.length ? age(x.running[0].seconds) : "–")], "No sessions.");
  }
  function limits(s) {
    const box = $("gauges");
    s.limits.forEach((l, i) => {
      let g = box.children[i];
      if (!g) { const b = bar(); b.dataset.gauge = ""; b.setAttribute("role", "meter"); box.append(g = make("div", {}, make("p", {}, make("span", {}), make("span", { class: "dim" })), b)); }
      const show = (n) => l.unit === "bytes" ? size(n) : String(n);
      text(g.firstChild.children[0], l.name);
      text(g.firstChild.children[1], l.setting || "");
      setBar(g.lastChild, l.most ? l.used / l.most : 0, show(l.used) + (l.most ? " of " + show(l.most) : ", no limit"), l.name);
    });
    while (box.children.length > s.limits.length) box.lastChild.remove();
  }
  function warnings(s) {
    const list = $("warnings-rows"), key = s.warnings.map((w) => w.time + w.count).join();
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    list.replaceChildren(...(s.warnings.length ? s.warnings : [null]).map((w) => !w ? make("li", { class: "dim" }, "No warnings.") : make("li", {},
      make("span", { class: w.level === "ERROR" ? "bad" : "warn" }, w.level), " ", make("time", { datetime: w.time, class: "dim" }, when(w.time)), " ", w.message, w.count > 1 ? " (" + w.count + " times) " : " ",
      make("code", {}, (w.attributes || []).map((a) => a.key + "=" + a.value).join(" ")))));
  }
  function settings(s) {
    const p = s.process, b = p.build;
    pairs($("settings"), s.settings.map((x) => [x.key, x.value]).concat([["incarnation", p.incarnation], ["started", when(p.started)], ["build", [b.version, b.commit.slice(0, 12), b.go, b.platform].filter(Boolean).join(", ")]]));
  }

  // The stream of events; a browser begins another one when it has ended. What is older than two seconds is said to be so.
  function receive(s) {
    state.at = Date.now();
    if (s.version !== 1) return lost("This page knows version 1 of the status, and the process has " + s.version + ": reload it.");
    if (state.paused) { state.waiting = s; return; }
    state.status = s;
    show(s);
    lost("");
  }
  function lost(words) { const p = $("lost"); text(p, words); p.hidden = words === ""; }
  function connect() {
    const source = new EventSource("/api/events");
    source.onmessage = (e) => receive(JSON.parse(e.data));
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) { source.close(); poll(); } };
  }
  // poll stands in for a stream that was refused, since there are too many.
  function poll() {
    fetch("/api/status").then((r) => r.ok ? r.json() : Promise.reject(new Error(r.statusText))).then(receive).catch(() => {});
    setTimeout(Date.now() - state.at > 60000 ? connect : poll, 2000);
  }
  setInterval(() => {
    const silent = (Date.now() - state.at) / 1000;
    if (state.at && silent > 2 && !document.hidden) {
      lost("No answer of the process for " + age(silent) + ": what is below is older.");
      const badge = $("state");
      text(badge, "no answer");
      badge.className = "badge bad";
    }
  }, 500);

  $("pause").addEventListener("click", () => {
    state.paused = !state.paused;
    $("pause").setAttribute("aria-pressed", String(state.paused));
    text($("pause"), state.paused ? "Go on" : "Pause");
    if (!state.paused && state.waiting) receive(state.waiting);
  });
  $("filter").addEventListener("input", (e) => { state.filter = e.target.value; if (state.status) peers(state.status); });
  $("more").addEventListener("click", () => { state.all = true; peers(state.status); });
  for (const b of document.querySelectorAll("[data-sort]")) b.addEventListener("click", () => {
    state.reversed = state.by === b.dataset.sort && !state.reversed;
    state.by = b.dataset.sort;
    for (const other of document.querySelectorAll("[data-sort]")) other.parentNode.setAttribute("aria-sort", other !== b ? "none" : state.reversed ? "descending" : "ascending");
    if (state.status) peers(state.status);
  });
  addEventListener("resize", () => state.status && draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.status && draw());
  connect();
})();
