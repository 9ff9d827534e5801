package tryst_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
)

// The types of the settings are declared in an internal package. An importer can use only those with a name in package tryst.
func TestConfigTypesAreNamedHere(t *testing.T) {
	named := map[reflect.Type]bool{}
	for _, v := range []any{
		tryst.Config{}, tryst.ClientConfig{}, tryst.TLSConfig{}, tryst.RDMAConfig{}, tryst.KeepaliveConfig{}, tryst.LogConfig{}, tryst.OTelConfig{},
	} {
		named[reflect.TypeOf(v)] = true
	}
	var check func(path string, typ reflect.Type)
	check = func(path string, typ reflect.Type) {
		if strings.Contains(typ.PkgPath(), "/internal/") && !named[typ] {
			t.Errorf("%s has the type %v, which package tryst does not name", path, typ)
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			check(path, typ.Elem())
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(typ) {
				if f.IsExported() && len(f.Index) == 1 {
					check(path+"."+f.Name, f.Type)
				}
			}
		}
	}
	check("Config", reflect.TypeFor[tryst.Config]())
}

func TestLoadConfig(t *testing.T) {
	t.Setenv("TRYST_LISTEN", "127.0.0.1:0")
	t.Setenv("TRYST_KEEPALIVE_TIME", "20s")
	c, err := tryst.LoadConfig()
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:0" || c.Keepalive.Time != 20*time.Second || c.PeerTimeout != 10*time.Second {
		t.Errorf("listen %q, keepalive.time %v, peer-timeout %v; want those of the environment and the default", c.Listen, c.Keepalive.Time, c.PeerTimeout)
	}
	t.Setenv("TRYST_KEEPALIVE_TIME", "soon")
	if _, err := tryst.LoadConfig(); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("error %v, want InvalidArgument", err)
	}
}
