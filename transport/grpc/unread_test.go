package grpctransport

import (
	"strings"
	"sync/atomic"
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
		onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, _ *atomic.Int64, log *strings.Builder) {
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

// TestSmallResponsesThatNobodyReadsEndTheConnection, which are not charged: their calls are.
func TestSmallResponsesThatNobodyReadsEndTheConnection(t *testing.T) {
	onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, served *atomic.Int64, log *strings.Builder) {
		c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		for i := range 100 {
			c.whole(uint32(1+2*i), "/tensorflow.WorkerService/RegisterGraph")
		}
		synctest.Wait()
		if served.Load() != 100 || stats.Bytes() == 0 {
			t.Fatalf("%d calls are served, charged with %d bytes", served.Load(), stats.Bytes())
		}
		time.Sleep(2 * responseTime)
		synctest.Wait()
		if stats.Unread() != 1 || stats.Bytes() != 0 || !strings.Contains(log.String(), "100 responses of a connection wait") {
			t.Errorf("the connection goes on: %d ended, %d bytes charged, log %s", stats.Unread(), stats.Bytes(), log)
		}
	})
}

// TestCallsThatWaitForTheirHandlersGoOn: no response is to be read yet. Small ones that are read do not matter.
func TestCallsThatWaitForTheirHandlersGoOn(t *testing.T) {
	onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, _ *atomic.Int64, _ *strings.Builder) {
		for i := range 10 {
			c.whole(uint32(1+2*i), "/test/Wait")
		}
		for stream := uint32(101); stream < 121; stream += 2 {
			c.whole(stream, "/tensorflow.WorkerService/RegisterGraph")
			if !endOf(stream, frames) {
				t.Fatalf("call %d has no response", stream)
			}
			time.Sleep(responseTime - time.Millisecond)
		}
		if stats.Unread() != 0 {
			t.Error("the connection has ended")
		}
	})
}

// TestSlowReadersGoOn: as long as they read responseProgress in a minute, and however long nothing is to be
// read.
func TestSlowReadersGoOn(t *testing.T) {
	onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, served *atomic.Int64, _ *strings.Builder) {
		for stream := uint32(1); stream < 5; stream += 2 {
			c.large(stream)
			for read := 0; read < largeResponse; read += 8 << 10 {
				time.Sleep(responseTime / (responseProgress / (8 << 10)) * 9 / 10)
				c.reads(stream, 8<<10)
			}
			if !endOf(stream, frames) || stats.Unread() != 0 {
				t.Errorf("%d calls are served, %d connections ended", served.Load(), stats.Unread())
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
