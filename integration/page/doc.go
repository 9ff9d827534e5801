// Package page tests what people see of running processes: the page at the metrics address, in headless Chromium, and tryst top, in
// tmux. Both show three processes of a cluster under load. make test-page runs it, since it needs a Chromium and tmux.
package page
