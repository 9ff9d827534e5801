package sources

import (
	"os"
	"testing"
)

// TestSetForLibrary: the user's value stays, also an empty one.
func TestSetForLibrary(t *testing.T) {
	const name = "TRYST_TEST_OF_A_LIBRARY"
	t.Setenv(name, "")
	if err := SetForLibrary(name, "2"); err != nil || os.Getenv(name) != "" {
		t.Errorf("%q, %v", os.Getenv(name), err)
	}
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
	if err := SetForLibrary(name, "2"); err != nil || os.Getenv(name) != "2" {
		t.Errorf("%q, %v", os.Getenv(name), err)
	}
}
