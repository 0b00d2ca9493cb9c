//go:build tools

// Package tools names the program that ./build compiles, so that go.mod keeps what it needs.
package tools

import _ "go.etcd.io/etcd/server/v3/etcdmain"
