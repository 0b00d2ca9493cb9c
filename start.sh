#!/usr/bin/env bash
# Entry point of a pod: checks the environment, stages the job's config directory, becomes the launcher.
# `start.sh --help` lists every variable. Sourced, it only defines functions.
set -euo pipefail

EXIT_MISSING_INPUT=66
EXIT_VOLUME=74
EXIT_CONFIG=78

help() {
    cat <<'HELP'
start.sh [FLAG...]       stages the job's config directory and starts the launcher with the flags below and FLAG...
start.sh COMMAND [ARG...] runs COMMAND instead (the first word is no flag): start.sh paddle version
start.sh --help          prints this and touches nothing

A flag given as argument (the Job's `args`) wins over its variable, a variable over its default.

VARIABLE                     DEFAULT               MEANING
JOB_PATH                     required              mount point of the shared volume
JOB_NAME                     required              the Job's metadata.name, and its directory on the volume
TRAIN_CONFIG_DIR             required              config directory inside JOB_PATH/JOB_NAME
CONF_PADDLE_NIC              required              interface or address that the pserver binds
CONF_PADDLE_PORT             required              first port of the pserver
CONF_PADDLE_PORTS_NUM        required              dense ports: --ports_num
CONF_PADDLE_PORTS_NUM_SPARSE required              sparse ports: --ports_num_for_sparse
CONF_PADDLE_GRADIENT_NUM     required              number of pods = trainers
JOB_NAMESPACE                the pod's own         namespace of the Job's pods (SERVICE_ACCOUNT_DIR/namespace)
TRAIN_CONFIG                 trainer_config.py     --config; where that is absent, trainer_config.lr.py
DOT_PERIOD                   10                    --dot_period: batches per dot of the log
LOG_PERIOD                   50                    --log_period: batches per line of the log
NUM_PASSES                   10                    --num_passes: passes over the data
TRAINER_COUNT                1                     --trainer_count: threads of a trainer, each of which computes a share of every batch
SAVING_PERIOD                1                     --saving_period: passes between two saves
LOCAL                        0                     --local: 1 trains without pservers
USE_GPU                      0                     --use_gpu
WORK_DIR                     /root (image: /work)  writable directory; the job runs in WORK_DIR/JOB_NAME
SERVICE_ACCOUNT_DIR          /var/run/secrets/kubernetes.io/serviceaccount  where the pod's account is mounted

EXIT 66 the config directory or the config is missing; 74 WORK_DIR is not writable or is full, or the volume is sick;
     78 a variable is missing or malformed (all are named at once); else the launcher's own: start_paddle.py --help
HELP
}

say() { echo "start.sh: $*"; }

# fail STATUS LINE...: every line goes to stderr
fail() {
    local status=$1 line
    shift
    for line; do echo "start.sh: $line" >&2; done
    exit "$status"
}

set_defaults() {
    local account=${SERVICE_ACCOUNT_DIR:-/var/run/secrets/kubernetes.io/serviceaccount}
    WORK_DIR=${WORK_DIR:-/root}
    if [ -z "${JOB_NAMESPACE:-}" ] && [ -r "$account/namespace" ]; then
        JOB_NAMESPACE=$(<"$account/namespace")
    fi
    export WORK_DIR JOB_NAMESPACE="${JOB_NAMESPACE:-}"
}

# Every problem at once: a pod that must be started eight times to learn of eight variables costs eight schedulings.
check_environment() {
    local name problems=()
    for name in JOB_PATH JOB_NAME JOB_NAMESPACE TRAIN_CONFIG_DIR CONF_PADDLE_NIC CONF_PADDLE_PORT CONF_PADDLE_PORTS_NUM \
        CONF_PADDLE_PORTS_NUM_SPARSE CONF_PADDLE_GRADIENT_NUM; do
        [ -n "${!name:-}" ] || problems+=("$name is not set in the pod's env")
    done
    # the name becomes a directory that a later start deletes, so it must be a name and nothing else
    if [ -n "${JOB_NAME:-}" ] && ! [[ $JOB_NAME =~ ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$ ]]; then
        problems+=("JOB_NAME is '$JOB_NAME'; set it to the Job's metadata.name (lower case letters, digits, '-' and '.')")
    fi
    # one directory below the job's: not the job itself with all its shards, and nothing outside
    if [ -n "${TRAIN_CONFIG_DIR:-}" ] && [[ /${TRAIN_CONFIG_DIR%/}/ =~ /\.{0,2}/ ]]; then
        problems+=("TRAIN_CONFIG_DIR is '$TRAIN_CONFIG_DIR'; set it to the name of a directory in JOB_PATH/JOB_NAME")
    fi
    for name in JOB_PATH WORK_DIR; do
        if [ -n "${!name:-}" ] && [[ ${!name} != /* ]]; then
            problems+=("$name is '${!name}'; set it to an absolute path")
        fi
    done
    [ ${#problems[@]} -eq 0 ] || fail $EXIT_CONFIG "${problems[@]}" "k8s/job.yaml sets all of them; start.sh --help says what they mean"
}

is_writable_dir() { [ -d "$1" ] && [ -w "$1" ] && [ -x "$1" ]; }

# A uid without an entry in passwd has HOME=/, and a read-only root has no /tmp of its own.
set_home_and_tmp() {
    is_writable_dir "${HOME:-/nonexistent}" || export HOME=$WORK_DIR
    is_writable_dir "${TMPDIR:-/tmp}" || export TMPDIR=$WORK_DIR
}

# copy_tree SOURCE TARGET: links are followed, because a relative one points nowhere from the work directory. A file server
# may answer ESTALE once after the directory was replaced, so a failed copy begins again.
copy_tree() {
    local attempt
    for attempt in 1 2 3; do
        if cp -RL -- "$1/." "$2/"; then return 0; fi
        say "copy of $1 failed (attempt $attempt of 3)" >&2
        rm -rf -- "$2"
        mkdir -- "$2"
    done
    return 1
}

# A volume that answers neither yes nor no (ESTALE, EIO) may be mended; a missing directory ends the Job for good.
check_volume() {
    local said
    if said=$(LC_ALL=C stat -- "$1" 2>&1 >/dev/null); then return; fi
    case $said in
        *': No such file or directory' | *': Not a directory' | *': Permission denied') ;;
        *) fail $EXIT_VOLUME "cannot look at $1 ($said)" "look after the volume; the Job starts this pod again" ;;
    esac
}

# Copies the config directory beside the work directory and renames it into place: what an earlier container left, whole or
# half, is replaced and never mixed in.
stage_config() {
    local source=$JOB_PATH/$JOB_NAME/$TRAIN_CONFIG_DIR target=$WORK_DIR/$JOB_NAME parent fresh old
    for parent in "$JOB_PATH" "$JOB_PATH/$JOB_NAME" "$source"; do
        if [ -d "$parent" ] && ! { [ -r "$parent" ] && [ -x "$parent" ]; }; then
            fail $EXIT_MISSING_INPUT "uid $(id -u) may not read $parent ($(stat -c 'owner %u:%g, mode %a' "$parent"))" \
                "give the shared directory to it, on the server: chown $(id -u):$(id -g) DIRECTORY"
        fi
    done
    check_volume "$source"
    [ -d "$source" ] || fail $EXIT_MISSING_INPUT "no config directory $source" \
        "run the data job first (it makes JOB_PATH/JOB_NAME/TRAIN_CONFIG_DIR), or correct one of the three variables"
    mkdir -p -- "$WORK_DIR" 2>/dev/null || true
    is_writable_dir "$WORK_DIR" || fail $EXIT_VOLUME "uid $(id -u) cannot write the work directory WORK_DIR=$WORK_DIR" \
        "mount an emptyDir there, or set WORK_DIR to a writable directory"
    # what is staged replaces the target, so the target must never be the job's own directory on the volume
    if [ -e "$target" ] && { [ "$target" -ef "$JOB_PATH/$JOB_NAME" ] || [ "$target" -ef "$source" ]; }; then
        fail $EXIT_CONFIG "WORK_DIR is '$WORK_DIR' and JOB_PATH is '$JOB_PATH': the work directory would be the job's own, $target" \
            "set WORK_DIR to a directory that is not on the shared volume"
    fi
    rm -rf -- "$WORK_DIR/.new~$JOB_NAME."?????? "$WORK_DIR/.old~$JOB_NAME."??????
    fresh=$(mktemp -d "$WORK_DIR/.new~$JOB_NAME.XXXXXX")
    old=$(mktemp -d "$WORK_DIR/.old~$JOB_NAME.XXXXXX")
    copy_tree "$source" "$fresh" || fail $EXIT_VOLUME "cannot copy $source to $WORK_DIR; the reason is above"
    chmod u+rwx,go+rx "$fresh"
    if [ -e "$target" ]; then mv -- "$target" "$old/"; fi
    mv -- "$fresh" "$target"
    rm -rf -- "$old"
    cd -- "$target"
    say "staged $(find . -type f | wc -l) files of $source in $target"
}

# has_flag NAME ARG...: one dash or two, with the value behind '=' or in the next argument
has_flag() {
    local name=$1 argument
    shift
    for argument; do
        case $argument in "--$name" | "--$name="* | "-$name" | "-$name="*) return 0 ;; esac
    done
    return 1
}

# choose_config ARG...: sets TRAIN_CONFIG; one that comes as argument is the launcher's to judge
choose_config() {
    if has_flag config "$@"; then return 0; fi
    if [ -z "${TRAIN_CONFIG:-}" ]; then
        TRAIN_CONFIG=trainer_config.py
        if ! [ -f "$TRAIN_CONFIG" ] && [ -f trainer_config.lr.py ]; then TRAIN_CONFIG=trainer_config.lr.py; fi
    fi
    [ -f "$TRAIN_CONFIG" ] || fail $EXIT_MISSING_INPUT "no config $TRAIN_CONFIG in $JOB_PATH/$JOB_NAME/$TRAIN_CONFIG_DIR" \
        "set TRAIN_CONFIG to one of its files: $(printf '%s ' *.py)"
}

main() {
    case ${1:-} in
        -h | --help) help; return 0 ;;
        -* | '') ;;
        *) exec "$@" ;;
    esac
    local here
    here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
    # a shell that is process 1 ignores SIGTERM unless it says otherwise
    trap 'exit 143' TERM INT
    set_defaults
    check_environment
    say "job $JOB_NAMESPACE/$JOB_NAME, $CONF_PADDLE_GRADIENT_NUM pods, volume $JOB_PATH"
    stage_config
    set_home_and_tmp
    choose_config "$@"
    # a flag that is passed as argument is left out here, so that it is given once
    local flags=() pair
    for pair in "dot_period=${DOT_PERIOD:-10}" "ports_num=$CONF_PADDLE_PORTS_NUM" \
        "ports_num_for_sparse=$CONF_PADDLE_PORTS_NUM_SPARSE" "log_period=${LOG_PERIOD:-50}" "num_passes=${NUM_PASSES:-10}" \
        "trainer_count=${TRAINER_COUNT:-1}" "saving_period=${SAVING_PERIOD:-1}" "local=${LOCAL:-0}" \
        "config=${TRAIN_CONFIG:-}" "use_gpu=${USE_GPU:-0}"; do
        has_flag "${pair%%=*}" "$@" || flags+=("--$pair")
    done
    say "exec start_paddle.py ${flags[*]} $*"
    exec python3 "$here/start_paddle.py" "${flags[@]}" "$@"
}

# true in `. start.sh`, false in `bash start.sh` and `./start.sh`
is_sourced() { [ "${#FUNCNAME[@]}" -ge 2 ] && [ "${FUNCNAME[1]}" = source ]; }

is_sourced || main "$@"
