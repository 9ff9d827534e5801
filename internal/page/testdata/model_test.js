"use strict";
const test = require("node:test"), assert = require("node:assert");
const { size, age, short, History, peers, circle, mapText } = require("../files/model.js");

test("sizes have three digits", () => {
  assert.deepEqual([0, 999, 999.6, 1234, 99949, 99951, 1e6, 1.5e9, 1e21].map(size), ["0 B", "999 B", "1.0 kB", "1.2 kB", "99.9 kB", "100 kB", "1.0 MB", "1.5 GB", "1000000 PB"]);
});
test("ages", () => {
  assert.deepEqual([-1, 9.99, 42, 61 * 2, 7200, 86400 * 3].map(age), ["0.0 s", "10.0 s", "42 s", "2 min 02", "2 h 00", "3 d"]);
  assert.equal(short("/job:ps/replica:0/task:12"), "ps:12");
});
test("the history begins with that of the process, and has a point for each event", () => {
  const h = new History(4), at = (s) => new Date(1e12 + 1000 * s).toISOString();
  const rate = (route, sent) => ({ route, sent_bytes_per_second: sent, received_bytes_per_second: 0 });
  h.add({ time: at(3), routes: [rate("shm", 3)], history: { interval_seconds: 1, end: at(3), routes: [{ route: "shm", sent: [1, 2, 3], received: [0, 0, 0] }] } });
  assert.deepEqual(h.times, [1e9 + 1, 1e9 + 2, 1e9 + 3]);
  h.add({ time: at(3), routes: [rate("shm", 9)] }); // the same second again
  h.add({ time: at(4), routes: [rate("shm", 4), rate("tcp", 7)] }); // a route that is new
  h.add({ time: at(5), routes: [rate("tcp", 8)] });
  assert.deepEqual(h.times.map((t) => t - 1e9), [2, 3, 4, 5]);
  assert.deepEqual(h.routes.get("shm").sent, [2, 3, 4, 0]);
  assert.deepEqual(h.routes.get("tcp").sent, [0, 0, 7, 8]);
});
const some = [
  { task: "/job:w/replica:0/task:1", state: "up", route: "shm", sent_bytes_per_second: 5, received_bytes_per_second: 0, sent_bytes: 5, received_bytes: 0, waits: 0 },
  { task: "/job:w/replica:0/task:2", state: "down", route: "grpc", error: "Connection refused", sent_bytes_per_second: 0, received_bytes_per_second: 0, sent_bytes: 0, received_bytes: 0, waits: 3 },
  { task: "/job:w/replica:0/task:3", state: "gone", route: "tcp", sent_bytes_per_second: 0, received_bytes_per_second: 0, sent_bytes: 0, received_bytes: 0, waits: 0 },
];
const names = (list) => list.map((p) => short(p.task)).join();
test("peers are filtered by words and sorted", () => {
  assert.equal(names(peers(some, "", "", false)), "w:1,w:2,w:3");
  assert.equal(names(peers(some, "REFUSED grpc", "", false)), "w:2");
  assert.equal(names(peers(some, "", "waits", false)), "w:2,w:1,w:3");
  assert.equal(names(peers(some, "", "state", false)), "w:2,w:1,w:3");
  assert.equal(names(peers(some, "", "task", true)), "w:3,w:2,w:1");
});
test("a peer that is silent comes before those that answer, and is in the picture", () => {
  const stopped = { ...some[2], task: "/job:w/replica:0/task:4", state: "silent", route: "shm" };
  const all = [...some, { ...some[2], task: "/job:w/replica:0/task:5", state: "up" }, stopped];
  assert.equal(names(peers(all, "", "state", false)), "w:2,w:4,w:1,w:5,w:3");
  assert.equal(names(circle(all, 3).nodes.map((n) => n.peer)), "w:1,w:2,w:4");
});
test("the picture has the busiest peers, and those that are waited for", () => {
  const all = circle(some, 10);
  assert.equal(all.more, 0);
  assert.equal(names(all.nodes.map((n) => n.peer)), "w:1,w:2");
  assert.ok(all.nodes[0].sent > 7 && all.nodes[0].received === 0);
  const one = circle(some, 1);
  assert.equal(one.more, 1);
  assert.equal(names(one.nodes.map((n) => n.peer)), "w:1");
  assert.match(mapText(some), /w:1: sends 0 B\/s to this process, gets 5 B\/s \(shm\)/);
  assert.match(mapText([]), /No bytes/);
});
