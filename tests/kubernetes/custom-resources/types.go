//go:build types

// Package types names the packages whose types `make` turns into CustomResourceDefinitions, so that go.mod keeps their modules.
package types

import (
	_ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	_ "sigs.k8s.io/kueue/apis/kueue/v1alpha1"
	_ "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	_ "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)
