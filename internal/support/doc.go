// Package support makes the archive of tryst support: what a report of a problem needs, without secrets, and bounded in
// size.
package support
