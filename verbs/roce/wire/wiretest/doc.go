// Package wiretest has what tests need to look at RoCEv2 packets that were
// captured: files in the format of libpcap, Ethernet frames, and the check that
// a packet is what package wire would have made.
package wiretest
