// Package rocetest helps tests outside verbs/roce to build and to examine RoCEv2
// packets: the packet codec of package rocewire, Ethernet frames, and capture files in
// the format of libpcap.
package rocetest
