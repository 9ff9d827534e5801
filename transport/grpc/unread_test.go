package grpctransport

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// large makes a call whose response is largeResponse bytes, middle one of middleResponse.
func (c *rawClient) large(stream uint32)  { c.whole(stream, "/test/Large") }
func (c *rawClient) middle(stream uint32) { c.whole(stream, "/test/Middle") }

// whole makes a call with an empty request.
func (c *rawClient) whole(stream uint32, path string) {
	c.call(stream, path)
	c.must(c.WriteData(stream, true, prefixOf(0, 0)))
}

// reads lets the server send n more bytes on a stream.
func (c *rawClient) reads(stream uint32, n int) {
	c.must(c.WriteWindowUpdate(0, uint32(n)))
	c.must(c.WriteWindowUpdate(stream, uint32(n)))
}

// TestResponsesThatNobodyReadsEndTheConnection, whatever else its client does: others wait for what they
// are charged with.
func TestResponsesThatNobodyReadsEndTheConnection(t *testing.T) {
	for name, does := range map[string]func(c *rawClient, second int){
		"nothing":      func(*rawClient, int) {},
		"calls":        func(c *rawClient, second int) { c.headers(uint32(3 + 2*second)) },
		"more of them": func(c *rawClient, second int) { c.large(uint32(3 + 2*second)) },
		"reads a little": func(c *rawClient, second int) {
			if second%30 == 0 {
				c.reads(1, responseProgress/4)
			}
		},
	} {
		onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, _ *int, log *strings.Builder) {
			c.large(1)
			for second := range int(2*responseTime/time.Second) - 1 {
				does(c, second)
				time.Sleep(time.Second)
				synctest.Wait()
				if stats.Unread() != 0 && second < int(responseTime/time.Second)-1 {
					t.Fatalf("%s: ended after %d s", name, second)
				}
				if stats.Unread() != 0 {
					break
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for range len(frames) {
				<-frames
			}
			if _, open := <-frames; open || stats.Unread() != 1 || strings.Count(log.String(), "ending a connection") != 1 {
				t.Errorf("%s: the connection goes on, %d ended, log %s", name, stats.Unread(), log)
			}
		})
	}
}

// TestSlowReadersGoOn: as long as they read responseProgress in a minute, and however long nothing is to be
// read.
func TestSlowReadersGoOn(t *testing.T) {
	onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, served *int, _ *strings.Builder) {
		for stream := uint32(1); stream < 5; stream += 2 {
			c.large(stream)
			for read := 0; read < largeResponse; read += 8 << 10 {
				time.Sleep(responseTime / (responseProgress / (8 << 10)) * 9 / 10)
				c.reads(stream, 8<<10)
			}
			if !endOf(stream, frames) || stats.Unread() != 0 {
				t.Errorf("%d calls are served, %d connections ended", *served, stats.Unread())
			}
			time.Sleep(time.Hour)
		}
		for stream := uint32(5); stream < 500; stream += 4 { // the second one waits at the look for the first
			c.middle(stream)
			synctest.Wait()
			c.reads(stream, middleResponse)
			time.Sleep(responseTime - time.Millisecond)
			c.middle(stream + 2)
			synctest.Wait()
			time.Sleep(2 * time.Millisecond)
			c.reads(stream+2, middleResponse)
			if !endOf(stream+2, frames) {
				t.Fatalf("call %d has no response, %d connections ended", stream+2, stats.Unread())
			}
			time.Sleep(time.Hour)
		}
	})
}
