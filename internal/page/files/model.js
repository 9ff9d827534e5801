// What the page computes, without the document: the tests run it alone.
"use strict";
var tryst = (function () {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  // size shows bytes with three digits.
  function size(n) {
    let u = 0;
    while (Math.abs(n) >= 999.5 && u < units.length - 1) { n /= 1000; u++; }
    return (u === 0 || n >= 99.95 ? n.toFixed(0) : n.toFixed(1)) + " " + units[u];
  }
  // age shows seconds.
  function age(s) {
    s = Math.max(0, s);
    if (s < 10) return s.toFixed(1) + " s";
    if (s < 100) return s.toFixed(0) + " s";
    if (s < 6000) return Math.floor(s / 60) + " min " + String(Math.floor(s % 60)).padStart(2, "0");
    if (s < 172800) return Math.floor(s / 3600) + " h " + String(Math.floor(s / 60 % 60)).padStart(2, "0");
    return Math.floor(s / 86400) + " d";
  }
  // short is the name of a task without what is the same in most.
  function short(task) { return task.replace(/^\/job:/, "").replace("/replica:0", "").replace("/task:", ":"); }

  // History keeps the rates of each route: those of the first status, and one point of each later one.
  function History(most) { this.most = most; this.times = []; this.routes = new Map(); this.end = 0; }
  History.prototype.add = function (status) {
    if (status.history) return this.begin(status);
    const at = Math.floor(Date.parse(status.time) / 1000);
    if (at <= this.end) return;
    this.end = at;
    this.times.push(at);
    for (const r of status.routes) this.route(r.route);
    for (const [name, r] of this.routes) {
      const now = status.routes.find((one) => one.route === name);
      r.sent.push(now ? now.sent_bytes_per_second : 0);
      r.received.push(now ? now.received_bytes_per_second : 0);
    }
    while (this.times.length > this.most) {
      this.times.shift();
      for (const r of this.routes.values()) { r.sent.shift(); r.received.shift(); }
    }
  };
  History.prototype.begin = function (status) {
    const h = status.history, end = Math.floor(Date.parse(h.end) / 1000);
    const n = h.routes.reduce((most, r) => Math.max(most, r.sent.length), 0);
    this.end = end;
    this.times = Array.from({ length: n }, (_, i) => end - (n - 1 - i) * h.interval_seconds);
    this.routes = new Map(h.routes.map((r) => [r.route, { sent: fill(r.sent, n), received: fill(r.received, n) }]));
  };
  History.prototype.route = function (name) {
    if (!this.routes.has(name)) this.routes.set(name, { sent: fill([], this.times.length - 1), received: fill([], this.times.length - 1) });
  };
  function fill(list, n) { return Array(Math.max(0, n - list.length)).fill(0).concat(list); }

  // peers returns those that match each word of a filter, sorted by a field; numbers with the largest first.
  function peers(all, filter, by, reversed) {
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rank = { down: 0, silent: 1, connecting: 2, up: 3, gone: 4 };
    const list = all.filter((p) => {
      const text = [p.task, p.state, p.route, p.reason, p.error, p.device].join(" ").toLowerCase();
      return words.every((w) => text.includes(w));
    });
    if (by) list.sort((a, b) => {
      const x = by === "state" ? rank[a.state] : a[by], y = by === "state" ? rank[b.state] : b[by];
      const order = typeof x === "number" && by !== "state" ? y - x : x < y ? -1 : x > y ? 1 : 0;
      return reversed ? -order : order;
    });
    return list;
  }

  // circle places the busiest peers around this process, and says how thick each line is. The others are one point.
  function circle(all, most) {
    const busy = (p) => p.sent_bytes_per_second + p.received_bytes_per_second;
    const rank = (p) => (p.state !== "up" ? 1 : 0) + (p.waits > 0 ? 2 : 0);
    const order = all.filter((p) => p.state !== "gone").sort((a, b) => busy(b) - busy(a) || rank(b) - rank(a) || b.sent_bytes + b.received_bytes - a.sent_bytes - a.received_bytes);
    const shown = order.slice(0, most).sort((a, b) => a.task < b.task ? -1 : 1);
    const top = shown.reduce((m, p) => Math.max(m, p.sent_bytes_per_second, p.received_bytes_per_second), 1);
    const thick = shown.length > 8 ? 2.5 : 6, width = (n) => n > 0 ? 1 + thick * Math.sqrt(n / top) : 0;
    return {
      more: order.length - shown.length,
      nodes: shown.map((p, i) => {
        const angle = 2 * Math.PI * i / shown.length - Math.PI / 2;
        return { peer: p, x: Math.cos(angle), y: Math.sin(angle), sent: width(p.sent_bytes_per_second), received: width(p.received_bytes_per_second) };
      }),
    };
  }
  // mapText says in words what the picture shows.
  function mapText(all) {
    const list = all.filter((p) => p.sent_bytes_per_second + p.received_bytes_per_second > 0)
      .sort((a, b) => b.sent_bytes_per_second + b.received_bytes_per_second - a.sent_bytes_per_second - a.received_bytes_per_second).slice(0, 3);
    if (list.length === 0) return "No bytes are sent or received at present.";
    return list.map((p) => short(p.task) + ": sends " + size(p.received_bytes_per_second) + "/s to this process, gets " + size(p.sent_bytes_per_second) + "/s (" + p.route + ")").join(". ") + ".";
  }
  return { size, age, short, History, peers, circle, mapText };
})();
if (typeof module !== "undefined") module.exports = tryst;
