//go:build tools

// Package tools names the program that ./build compiles, so that go.mod keeps what it needs.
package tools

import _ "github.com/versity/versitygw/cmd/versitygw"
