{{/* Written by `make chart`: the settings and components of each mode, and their defaults. */}}
{{- define "static.count" }}
{{- $default := "3" }}
{{- dig "count" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "static.minimum" }}
{{- $default := (sub (int (include "static.count" .)) 1) }}
{{- dig "minimum" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "static.components" }}quick_start any-program s3 gpu nfs single-node pod-names fewer-trainers disruption-budget quota kueue volcano prometheus prometheus-operator restricted{{ end }}
{{- define "static.settings" }}count minimum
{{- end }}
{{- define "tasks.JOB_NAME" }}
{{- $default := "paddle-elastic" }}
{{- dig "JOB_NAME" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.TRAIN_CONFIG_DIR" }}
{{- $default := "digits" }}
{{- if has "program" .Values.components }}{{ $default = "program" }}{{ end }}
{{- dig "TRAIN_CONFIG_DIR" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.NUM_PASSES" }}
{{- $default := "10" }}
{{- dig "NUM_PASSES" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.PSERVERS" }}
{{- $default := "2" }}
{{- dig "PSERVERS" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.CHECKPOINT_INTERVAL" }}
{{- $default := "60s" }}
{{- dig "CHECKPOINT_INTERVAL" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.ETCD_ENDPOINTS" }}
{{- $default := "https://paddle-etcd:2379" }}
{{- if has "three-members" .Values.components }}{{ $default = "https://paddle-etcd-0.paddle-etcd:2379,https://paddle-etcd-1.paddle-etcd:2379,https://paddle-etcd-2.paddle-etcd:2379" }}{{ end }}
{{- if has "external-etcd" .Values.components }}{{ $default = "https://ETCD_HOST:2379" }}{{ end }}
{{- dig "ETCD_ENDPOINTS" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.PADDLE_ETCD_CA" }}
{{- $default := "/etc/paddle-etcd/ca.crt" }}
{{- dig "PADDLE_ETCD_CA" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.PADDLE_ETCD_CERT" }}
{{- $default := "/etc/paddle-etcd/tls.crt" }}
{{- dig "PADDLE_ETCD_CERT" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.PADDLE_ETCD_KEY" }}
{{- $default := "/etc/paddle-etcd/tls.key" }}
{{- dig "PADDLE_ETCD_KEY" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.PADDLE_ETCD_USER" }}
{{- $default := "" }}
{{- dig "PADDLE_ETCD_USER" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.PADDLE_ETCD_PASSWORD_FILE" }}
{{- $default := "" }}
{{- dig "PADDLE_ETCD_PASSWORD_FILE" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.ENTRY" }}
{{- $default := "python train.py" }}
{{- dig "ENTRY" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "tasks.components" }}three-members external-etcd program nfs single-node quota restricted{{ end }}
{{- define "tasks.settings" }}CHECKPOINT_INTERVAL ETCD_ENDPOINTS JOB_NAME NUM_PASSES PADDLE_ETCD_CA PADDLE_ETCD_CERT PADDLE_ETCD_KEY PSERVERS TRAIN_CONFIG_DIR
{{- if has "external-etcd" .Values.components }} PADDLE_ETCD_PASSWORD_FILE PADDLE_ETCD_USER{{ end }}
{{- if has "program" .Values.components }} ENTRY{{ end }}
{{- end }}
{{- define "allreduce.JOB_NAME" }}
{{- $default := "paddle-allreduce" }}
{{- dig "JOB_NAME" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "allreduce.NUM_PROC" }}
{{- $default := "3" }}
{{- dig "NUM_PROC" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "allreduce.MIN_NP" }}
{{- $default := "2" }}
{{- dig "MIN_NP" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "allreduce.MAX_NP" }}
{{- $default := "8" }}
{{- dig "MAX_NP" $default .Values.settings | include "paddle.text" }}
{{- end }}
{{- define "allreduce.components" }}nfs single-node quota restricted{{ end }}
{{- define "allreduce.settings" }}JOB_NAME MAX_NP MIN_NP NUM_PROC
{{- end }}
{{/* made of 7607571dd3c2497f7f7cc3e4f1dfd2c9ee36864668dcef4cde8dc9ee2027761b */}}
