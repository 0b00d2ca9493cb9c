#!/usr/bin/env bash
# This script is the entry point of a pod. It checks the environment, copies the job's config directory to the work
# directory, and then becomes the launcher.
# `start.sh --help` lists every variable. When sourced, this file only defines functions.
set -euo pipefail

EXIT_DATA=65
EXIT_MISSING_INPUT=66
EXIT_VOLUME=74
EXIT_CONFIG=78

help() {
    cat <<'HELP'
start.sh [FLAG...]       stages the job's config directory and starts the launcher with the flags below and FLAG...
start.sh ROLE [FLAG...]  starts a program of a task job (docs/tasks.md, docs/allreduce.md) with its own flags; ROLE is master, pserver, trainer, autoscaler or driver
start.sh directories [--new] [NAME...]  makes directories of the job on the volume, which later containers of the pod mount; without --new, JOB_PATH/JOB_NAME must exist
start.sh COMMAND [ARG...] runs COMMAND instead (COMMAND must not begin like a flag): start.sh paddle version
start.sh --help          prints this and touches nothing

A flag in the arguments (`args` of the Job) overrides its variable, and a variable overrides its default.

VARIABLE                     DEFAULT               MEANING
JOB_PATH                     required              mount point of the shared volume
JOB_NAME                     required              the Job's metadata.name, and its directory on the volume
JOB_INPUT                    none                  address in a bucket, as s3://BUCKET/KEY, that has the config directory TRAIN_CONFIG_DIR and the shards in place of JOB_PATH/JOB_NAME
INPUT_TIMEOUT                3600                  seconds after which a copy from JOB_INPUT, or of one file to OUTPUT_COPY, gives up
OUTPUT_COPY                  none                  address in a bucket to which the launcher copies the output: each save when it is complete, its mark last
TRAIN_CONFIG_DIR             found                 config directory inside JOB_PATH/JOB_NAME; if not set, the only directory of JOB_PATH/JOB_NAME with a config
CONF_PADDLE_NIC              eth0                  interface or address that the pserver binds
CONF_PADDLE_PORT             7164                  first port of the pserver
CONF_PADDLE_PORTS_NUM        2                     --ports_num: number of ports of a pserver for dense parameters
CONF_PADDLE_PORTS_NUM_SPARSE 2                     --ports_num_for_sparse: number of ports of a pserver for sparse parameters
CONF_PADDLE_GRADIENT_NUM     the Job's own, or 3   number of trainers; the default is the Job's parallelism if the pod may read the Job, and 3 otherwise
JOB_NAMESPACE                the pod's own         namespace of the Job's pods (SERVICE_ACCOUNT_DIR/namespace)
TRAIN_CONFIG                 trainer_config.py     --config: the config script; if trainer_config.py does not exist, the default is trainer_config.lr.py
DOT_PERIOD                   10                    --dot_period: batches per dot of the log
LOG_PERIOD                   50                    --log_period: batches per line of the log
NUM_PASSES                   10                    --num_passes: passes over the data
TRAINER_COUNT                1                     --trainer_count: threads of a trainer, each of which computes a share of every batch
SAVING_PERIOD                1                     --saving_period: passes between two saves
LOCAL                        0                     --local: 1 trains without pservers
USE_GPU                      0                     --use_gpu: accepted, without effect
WORK_DIR                     /root (image: /work)  writable directory; the job runs in WORK_DIR/JOB_NAME
SERVICE_ACCOUNT_DIR          /var/run/secrets/kubernetes.io/serviceaccount  directory of the pod's service account
ETCD_ENDPOINTS               http://ETCD_IP:2379   roles: --etcd_endpoints: addresses of etcd, separated by commas
ETCD_IP                      MASTER_IP             roles: host of an etcd that listens on port 2379 (a variable of the 2017 image)
MASTER_IP                    none                  roles: host of an etcd that runs beside the master (a variable of the 2017 image)
PADDLE_JOB_NAME              JOB_NAME              roles: the name of the job in etcd, and of its directory on the volume
PSERVERS                     1                     pserver: --num_pservers: number of parameter servers of the job
OUTPUT                       JOB_PATH/JOB_NAME/output  output directory: --output of the master, --save_dir of a trainer, --output-filename of the driver
CHECKPOINT_PATH              JOB_PATH/JOB_NAME/servers  pserver: --checkpoint_path: directory of the snapshots
CHECKPOINT_INTERVAL          600s                  pserver: --checkpoint_interval: time between two snapshots
ENTRY                        none                  command of a shell that each trainer runs in place of `paddle train`, for example: python train.py
TRAINER_PACKAGE              none                  ENTRY: directory of the program in place of JOB_PATH/JOB_NAME/TRAIN_CONFIG_DIR; trainer: directory with the config or program and the data, in which the trainer runs without a copy; comes first in PYTHONPATH
MASTER_PORT                  29500                 ENTRY: port of rank 0 at which the program's processes meet
NUM_PSERVERS                 none                  another name of CONF_PADDLE_PSERVER_NUM; 0: no pserver, for a program of ENTRY
TOPOLOGY                     TRAIN_CONFIG          trainer: --config: the config script (a variable of the 2017 image)
PADDLE_INIT_X                none                  roles: value of the flag --x, where x is X in lower case (2017 image); the variables above override this variable; a program of ENTRY gets the flags of `paddle train` in such variables
TRAIN_LIST                   none                  trainer: has no effect, because the config names its list of files
ETCD_TIMEOUT                 600                   roles: seconds to wait for etcd before the program begins
VOLUME_TIMEOUT               3600                  trainer: seconds to wait for the config and the data on the volume
NUM_PROC                     1                     driver: --num-proc: number of workers at the beginning
MIN_NP                       NUM_PROC              driver: --min-np: minimum number of workers with which the job continues after a change
MAX_NP                       no bound              driver: --max-np: maximum number of workers
DISCOVERY                    kubernetes            driver: --discovery: how the driver finds its hosts
STORE_DIR                    JOB_PATH/JOB_NAME/driver  driver: --store-dir: directory of the driver's state, from which a new driver continues
DRIVER_ADDRESS               found                 driver: --address: name or address by which workers reach the driver
DRIVER_PORT                  any free port         driver: --port: port of the driver
AT_END                       exit                  roles: what the pod does after the end of the job: exit, or wait for SIGTERM; use wait in a Deployment or StatefulSet, which restarts a pod that exits
SCALE_TO_ZERO                none                  master, driver: objects, such as statefulsets/NAME or deployments/NAME, that are scaled to 0 pods when the job is done
CONF_PADDLE_METRICS_PORT     0                     roles: --metrics_port: port of /healthz, /readyz and /metrics; 0: none

EXIT 65 the config directory contains something that cannot be copied; 66 the config directory or the config is missing; 74 WORK_DIR is not writable or is full, or the volume does not answer properly;
     78 a variable is missing or malformed (all are named at once), or TRAIN_CONFIG_DIR must be set; all other statuses are those of the launcher: start_paddle.py --help
HELP
}

say() { echo "start.sh: $*"; }

# fail STATUS LINE...: prints every LINE to stderr, and exits with STATUS
fail() {
    local status=$1 line
    shift
    for line; do echo "start.sh: $line" >&2; done
    exit "$status"
}

# set_defaults: sets the work directory, and the namespace, which is the pod's own. The launcher has all other defaults.
set_defaults() {
    local account=${SERVICE_ACCOUNT_DIR:-/var/run/secrets/kubernetes.io/serviceaccount}
    WORK_DIR=${WORK_DIR:-/root}
    if [ -z "${JOB_NAMESPACE:-}" ] && [ -r "$account/namespace" ]; then
        JOB_NAMESPACE=$(<"$account/namespace")
    fi
    export WORK_DIR JOB_NAMESPACE="${JOB_NAMESPACE:-}"
}

# check_environment FILE NAME...: NAME... are the required variables, and FILE is a manifest that sets all of them.
# The function reports all problems at once, so a user corrects the manifest only once.
check_environment() {
    local file=$1 name problems=()
    shift
    for name; do
        [ -n "${!name:-}" ] || problems+=("$name is not set in the pod's env")
    done
    # JOB_NAME must not be a path such as ../x, because a later start deletes the directory WORK_DIR/JOB_NAME
    if [ -n "${JOB_NAME:-}" ] && ! [[ $JOB_NAME =~ ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$ ]]; then
        problems+=("JOB_NAME is '$JOB_NAME'; set it to the Job's metadata.name (lower case letters, digits, '-' and '.')")
    fi
    # TRAIN_CONFIG_DIR must name a directory directly below the job's directory; with another path, shards or other
    # files would be copied
    if [ -n "${TRAIN_CONFIG_DIR:-}" ] && [[ /${TRAIN_CONFIG_DIR%/}/ =~ /\.{0,2}/ ]]; then
        problems+=("TRAIN_CONFIG_DIR is '$TRAIN_CONFIG_DIR'; set it to the name of a directory in JOB_PATH/JOB_NAME")
    fi
    for name in JOB_PATH WORK_DIR TRAINER_PACKAGE; do
        if [ -n "${!name:-}" ] && [[ ${!name} != /* ]]; then
            problems+=("$name is '${!name}'; set it to an absolute path")
        fi
    done
    [ ${#problems[@]} -eq 0 ] || fail $EXIT_CONFIG "${problems[@]}" "$file sets all of them; start.sh --help says what they mean"
}

is_writable_dir() { [ -d "$1" ] && [ -w "$1" ] && [ -x "$1" ]; }

# A uid without an entry in /etc/passwd has HOME=/. If the root file system is read-only, /tmp may be read-only too.
set_home_and_tmp() {
    is_writable_dir "${HOME:-/nonexistent}" || export HOME=$WORK_DIR
    is_writable_dir "${TMPDIR:-/tmp}" || export TMPDIR=$WORK_DIR
}

# copy_tree SOURCE TARGET: copies the content of a directory. The function copies the targets of links, because a
# relative link would be broken in the work directory. A file server may answer ESTALE once after the source was
# replaced, so a failed copy is repeated.
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

# check_volume PATH: fails for errors of the volume such as ESTALE and EIO, which may be temporary. The Job then starts
# the pod again. The function accepts a missing directory. A later check reports a missing directory and ends the Job.
check_volume() {
    local said
    if said=$(LC_ALL=C stat -- "$1" 2>&1 >/dev/null); then return; fi
    case $said in
        *': No such file or directory' | *': Not a directory' | *': Permission denied') ;;
        *) fail $EXIT_VOLUME "cannot look at $1 ($said)" "check the volume; the Job starts this pod again" ;;
    esac
}

# check_readable DIRECTORY...: fails for an existing directory that this uid may not read
check_readable() {
    local each
    for each; do
        if [ -d "$each" ] && ! { [ -r "$each" ] && [ -x "$each" ]; }; then
            fail $EXIT_MISSING_INPUT "uid $(id -u) may not read $each ($(stat -c 'owner %u:%g, mode %a' "$each"))" \
                "on the file server, make this uid the owner of the shared directory: chown $(id -u):$(id -g) DIRECTORY"
        fi
    done
}

# has_file DIRECTORY NAME...: succeeds if the directory contains a file with one of the names. The name "*.py" matches
# every file whose name ends in .py
has_file() {
    local directory=$1 name files
    shift
    for name; do
        if [ "$name" = "*.py" ]; then files=("$directory"/*.py); else files=("$directory/$name"); fi
        if [ -f "${files[0]}" ]; then return 0; fi
    done
    return 1
}

# find_config_dir ARG...: if TRAIN_CONFIG_DIR is not set, sets it to the only directory of the job that has a config
find_config_dir() {
    local job=$JOB_PATH/$JOB_NAME configs=(trainer_config.py trainer_config.lr.py) each found=()
    if [ -n "${TRAIN_CONFIG_DIR:-}" ]; then return 0; fi
    check_readable "$JOB_PATH" "$job"
    check_volume "$job"
    if [ -n "${TRAIN_CONFIG:-}" ]; then configs=("$TRAIN_CONFIG"); fi
    # if an argument names the config, each directory with a Python file counts as a config directory here; the launcher
    # checks the config later
    if [ -n "${ENTRY:-}" ] || has_flag config "$@"; then configs=("*.py"); fi
    for each in "$job"/*/; do
        each=${each%/}
        # shards and the job's output contain no config
        if [[ ${each##*/} =~ ^([0-9]+|output)$ ]]; then continue; fi
        if has_file "$each" "${configs[@]}"; then found+=("${each##*/}"); fi
    done
    [ ${#found[@]} -ge 1 ] || fail $EXIT_MISSING_INPUT "no config directory in $job: none has a file ${configs[*]}" \
        "$(explain_missing)" \
        "run the data job first (it makes JOB_PATH/JOB_NAME/TRAIN_CONFIG_DIR), or correct one of the three variables"
    [ ${#found[@]} -eq 1 ] || fail $EXIT_CONFIG "TRAIN_CONFIG_DIR is not set, and several directories of $job have a config: ${found[*]}" \
        "set TRAIN_CONFIG_DIR to one of them"
    export TRAIN_CONFIG_DIR=${found[0]}
    say "not set in the pod's env, so by default: TRAIN_CONFIG_DIR=$TRAIN_CONFIG_DIR"
}

# list_directories DIRECTORY VARIABLE NAME: the value of VARIABLE is NAME, which does not exist in DIRECTORY. The
# function prints the directories that exist in DIRECTORY, and suggests the name that is most similar to NAME.
list_directories() {
    local each names=() shown=() likely='' line
    for each in "$1"/*/; do
        each=${each%/}
        each=${each##*/}
        # shards and outputs of programs contain no config
        if ! [[ $each =~ ^([0-9]+|output|servers|driver|state|\*)$ ]]; then names+=("$each"); fi
    done
    if [ ${#names[@]} -eq 0 ]; then
        echo "$1 has no such directory at all"
        return
    fi
    for each in "${names[@]:0:10}"; do shown+=("$(printf %q "$each")"); done
    line="$1 has ${shown[*]}"
    if [ ${#names[@]} -gt 10 ]; then line+=" and $((${#names[@]} - 10)) more directories"; fi
    likely=$(python3 -I -c 'import difflib, sys
names = {name.lower(): name for name in sys.argv[2:]}
print(*(names[name] for name in difflib.get_close_matches(sys.argv[1].lower(), names, 1)))' \
        "$3" "${names[@]:0:1000}" 2>/dev/null) || true
    if [ "$likely" = "$3" ]; then likely=''; fi
    echo "$line${likely:+; did you mean $2=$(printf %q "$likely")?}"
}

# explain_missing: prints which of JOB_NAME and TRAIN_CONFIG_DIR may be misspelt
explain_missing() {
    local job=$JOB_PATH/$JOB_NAME
    if [ -d "$job" ]; then
        list_directories "$job" TRAIN_CONFIG_DIR "${TRAIN_CONFIG_DIR:-}"
    elif [ -d "$JOB_PATH" ]; then
        echo "there is no $job; $(list_directories "$JOB_PATH" JOB_NAME "$JOB_NAME")"
    else
        echo "there is no $JOB_PATH: is the volume mounted there?"
    fi
}

# stage_config [DIRECTORY]: copies the config directory, or another directory, to a new directory beside the target, and then renames the copy to the
# target. The copy replaces everything that an earlier container left in the target, so files of two copies never mix.
stage_config() {
    local source=${1:-$JOB_PATH/$JOB_NAME/$TRAIN_CONFIG_DIR} target=$WORK_DIR/$JOB_NAME fresh old='' kinds
    check_readable "$JOB_PATH" "$JOB_PATH/$JOB_NAME" "$source"
    check_volume "$source"
    [ -d "$source" ] || fail $EXIT_MISSING_INPUT "no config directory $source" "$(explain_missing)" \
        "run the data job first (it makes JOB_PATH/JOB_NAME/TRAIN_CONFIG_DIR), or correct one of the three variables"
    [ -d "$WORK_DIR" ] || mkdir -p -- "$WORK_DIR" 2>/dev/null || true
    is_writable_dir "$WORK_DIR" || fail $EXIT_VOLUME "uid $(id -u) cannot write the work directory WORK_DIR=$WORK_DIR" \
        "mount an emptyDir there, or set WORK_DIR to a writable directory"
    # the staged copy replaces the target, so the target must never be the job's own directory on the volume
    if [ -e "$target" ] && { [ "$target" -ef "$JOB_PATH/$JOB_NAME" ] || [ "$target" -ef "$source" ]; }; then
        fail $EXIT_CONFIG "WORK_DIR is '$WORK_DIR' and JOB_PATH is '$JOB_PATH': the work directory would be the job's own, $target" \
            "set WORK_DIR to a directory that is not on the shared volume"
    fi
    # The launcher's rules for what can be copied in a finite time are those of the config directory, too. A directory
    # of files and directories alone needs no start of Python, which takes a fortieth of a second of the processor.
    kinds=$(find -L "$source" -mindepth 1 -printf %y 2>&1 | head -c 100001) || true
    if [[ $kinds = *[!fd]* ]] || [ ${#kinds} -gt 100000 ]; then
        python3 -P -m paddle_cluster.launcher.shards.tree "$source" || exit
        kinds=$(find -L "$source" -type f -printf f 2>/dev/null) || true
    fi
    if compgen -G "$WORK_DIR/.new~$JOB_NAME.??????" >/dev/null || compgen -G "$WORK_DIR/.old~$JOB_NAME.??????" >/dev/null; then
        rm -rf -- "$WORK_DIR/.new~$JOB_NAME."?????? "$WORK_DIR/.old~$JOB_NAME."??????
    fi
    fresh=$(mktemp -d "$WORK_DIR/.new~$JOB_NAME.XXXXXX")
    copy_tree "$source" "$fresh" || fail $EXIT_VOLUME "cannot copy $source to $WORK_DIR; the reason is above"
    chmod u+rwx,go+rx "$fresh"
    if [ -e "$target" ]; then
        old=$(mktemp -d "$WORK_DIR/.old~$JOB_NAME.XXXXXX")
        mv -- "$target" "$old/"
    fi
    mv -- "$fresh" "$target"
    if [ -n "$old" ]; then rm -rf -- "$old"; fi
    cd -- "$target"
    kinds=${kinds//d/}
    say "staged ${#kinds} files of $source in $target"
}

# fetch_config: copies the config directory from the bucket of JOB_INPUT, and then stages the copy. The output of the job
# goes to the volume all the same.
fetch_config() {
    local source=$WORK_DIR/.input~$JOB_NAME/${TRAIN_CONFIG_DIR:-}
    [ -n "${TRAIN_CONFIG_DIR:-}" ] || fail $EXIT_CONFIG "JOB_INPUT is set, and TRAIN_CONFIG_DIR is not" \
        "set TRAIN_CONFIG_DIR to the name of the config directory below JOB_INPUT"
    mkdir -p -- "$JOB_PATH/$JOB_NAME" 2>/dev/null || fail $EXIT_VOLUME "uid $(id -u) cannot make $JOB_PATH/$JOB_NAME" \
        "mount the volume for the output there, and make this uid the owner of the shared directory"
    rm -rf -- "$WORK_DIR/.input~$JOB_NAME"
    mkdir -p -- "$source" 2>/dev/null || fail $EXIT_VOLUME "uid $(id -u) cannot write the work directory WORK_DIR=$WORK_DIR" \
        "mount an emptyDir there, or set WORK_DIR to a writable directory"
    python3 -P -m paddle_base.remote JOB_INPUT "${JOB_INPUT%/}/$TRAIN_CONFIG_DIR/" "$source" "${INPUT_TIMEOUT:-3600}" || exit
    stage_config "$source"
    rm -rf -- "$WORK_DIR/.input~$JOB_NAME"
}

# has_flag NAME ARG...: succeeds if the flag is among the arguments, with one dash or two. The value of the flag follows
# '=' or is the next argument
has_flag() {
    local name=$1 argument
    shift
    for argument; do
        case $argument in "--$name" | "--$name="* | "-$name" | "-$name="*) return 0 ;; esac
    done
    return 1
}

# stage_program: copies the directory of the program of ENTRY, which the launcher and the program find as TRAINER_PACKAGE
stage_program() {
    if [ -z "${TRAINER_PACKAGE:-}" ] && [ -n "${JOB_INPUT:-}" ]; then
        fetch_config
    elif [ -z "${TRAINER_PACKAGE:-}" ]; then
        find_config_dir
        stage_config
    else
        [ -d "$TRAINER_PACKAGE" ] || fail $EXIT_MISSING_INPUT "TRAINER_PACKAGE is '$TRAINER_PACKAGE', which is no directory" \
            "set it to the directory of the program of ENTRY, on the volume or in the image"
        # the launcher resumes only output of the same directory
        export TRAIN_CONFIG_DIR=${TRAIN_CONFIG_DIR:-$(basename -- "$TRAINER_PACKAGE")}
        stage_config "$TRAINER_PACKAGE"
    fi
    export TRAINER_PACKAGE=$PWD
}

# choose_config ARG...: sets TRAIN_CONFIG, unless an argument names the config; the launcher checks such an argument
choose_config() {
    if has_flag config "$@"; then return 0; fi
    if [ -z "${TRAIN_CONFIG:-}" ]; then
        TRAIN_CONFIG=trainer_config.py
        if ! [ -f "$TRAIN_CONFIG" ] && [ -f trainer_config.lr.py ]; then TRAIN_CONFIG=trainer_config.lr.py; fi
    fi
    [ -f "$TRAIN_CONFIG" ] || fail $EXIT_MISSING_INPUT "no config $TRAIN_CONFIG in $JOB_PATH/$JOB_NAME/$TRAIN_CONFIG_DIR" \
        "set TRAIN_CONFIG to one of its files: $(printf '%s ' *.py)"
}

# make_directories [--new] [NAME...]: makes JOB_PATH/JOB_NAME/NAME. An init container does this, because a directory that
# the kubelet makes for a subPath belongs to root, and because the other containers mount no more of the volume.
make_directories() {
    local job is_new='' each said
    if [ "${1:-}" = --new ]; then
        is_new=1
        shift
    fi
    check_environment k8s/job.yaml JOB_PATH JOB_NAME
    job=$JOB_PATH/$JOB_NAME
    check_volume "$job"
    if [ -z "$is_new" ]; then
        check_readable "$JOB_PATH"
        [ -d "$job" ] || fail $EXIT_MISSING_INPUT "no directory $job" "$(explain_missing)" \
            "run the data job first (it makes JOB_PATH/JOB_NAME), or correct JOB_NAME and the subPath of the volume's mounts"
    fi
    for each in "" "${@/#//}"; do
        # the kubelet would mount what the link names, for example the output of another job
        if [ -L "$job$each" ]; then
            fail $EXIT_DATA "$job$each is a link" "replace it by a directory, which the pod mounts as its own"
        fi
        if said=$(LC_ALL=C mkdir -p -- "$job$each" 2>&1) && { [ -z "$each" ] || is_writable_dir "$job$each"; }; then continue; fi
        said=${said##*: }
        fail $EXIT_VOLUME "uid $(id -u) cannot make or write $job$each (${said:-$(stat -c 'owner %u:%g, mode %a' "$job$each")})" \
            "on the file server, make this uid the owner of the shared directory: chown $(id -u):$(id -g) DIRECTORY"
    done
}

# ----- Roles of a task job

# wait_for_data JOB: waits until the config directory and the data are on the volume, because the data job may still run
wait_for_data() {
    local job=$1 limit=${VOLUME_TIMEOUT:-3600} each name found said=-30
    [[ $limit =~ ^[0-9]{1,6}$ ]] || fail $EXIT_CONFIG "VOLUME_TIMEOUT is '$limit'; set it to whole seconds"
    while :; do
        check_readable "$JOB_PATH" "$job"
        check_volume "$JOB_PATH"
        found=''
        for each in "$job"/*/; do
            each=${each%/}
            if [[ ${each##*/} =~ ^([0-9]+|output|servers|\*)$ ]]; then continue; fi
            name=${TRAIN_CONFIG_DIR:-${each##*/}}
            if [ "${name%/}" != "${each##*/}" ]; then continue; fi
            if [ -e "$each/data" ] || [ -d "$job/0/data" ]; then found=$each; fi
        done
        if [ -n "$found" ]; then return 0; fi
        [ "$SECONDS" -lt "$limit" ] || fail $EXIT_MISSING_INPUT \
            "after $limit s there is no ${TRAIN_CONFIG_DIR:-config directory} in $job, or no data (0/data beside that directory, or data inside it)" \
            "$(explain_missing)" \
            "run the data job of k8s/tasks, or put the directory and the data there"
        if [ $((SECONDS - said)) -ge 30 ]; then
            said=$SECONDS
            say "waiting for the config and the data in $job, which the data job makes: kubectl get jobs"
        fi
        # the pause is short, because bash handles a signal only after the running command has ended
        sleep 1
    done
}

# stage_elastic ARG...: copies the config to WORK_DIR. The data stay on the volume, and a link beside the config points
# to them, because the master may assign any file to any trainer.
stage_elastic() {
    local job
    if [ -n "${TRAINER_PACKAGE:-}" ]; then
        cd -- "$TRAINER_PACKAGE" 2>/dev/null || fail $EXIT_MISSING_INPUT "TRAINER_PACKAGE is '$TRAINER_PACKAGE', which cannot be entered" \
            "set it to the directory of the config on the volume"
        return 0
    fi
    check_environment k8s/tasks JOB_PATH JOB_NAME
    job=$JOB_PATH/$JOB_NAME
    wait_for_data "$job"
    find_config_dir "$@"
    stage_config
    if ! [ -e data ]; then ln -s -- "$job/0/data" data; fi
    if [ -n "${ENTRY:-}" ]; then
        export TRAINER_PACKAGE=$PWD
        return 0
    fi
    TRAIN_CONFIG=${TRAIN_CONFIG:-${TOPOLOGY:-}}
    choose_config "$@"
    export TRAIN_CONFIG
}

# start_role ROLE ARG...: prepares the directories of a role, and then replaces this shell by paddle_cluster.launcher.roles, which
# starts the role's program
start_role() {
    local role=$1
    shift
    trap 'exit 143' TERM INT
    WORK_DIR=${WORK_DIR:-/root}
    export WORK_DIR JOB_NAME=${JOB_NAME:-${PADDLE_JOB_NAME:-}}
    set_home_and_tmp
    if [ "$role" = trainer ]; then stage_elastic "$@"; fi
    exec python3 -P -m paddle_cluster.launcher.roles "$role" "$@"
}

main() {
    case ${1:-} in
        -h | --help) help; return 0 ;;
        -* | '') ;;
        directories) make_directories "${@:2}"; return 0 ;;
        master | pserver | trainer | autoscaler | driver) start_role "$@" ;;
        *) exec "$@" ;;
    esac
    local here
    here=${BASH_SOURCE[0]}
    case $here in */*) here=${here%/*}/ ;; *) here=. ;; esac
    here=$(cd -- "$here" && pwd)
    # without a trap, a shell that is process 1 ignores SIGTERM
    trap 'exit 143' TERM INT
    set_defaults
    check_environment k8s/job.yaml JOB_PATH JOB_NAME JOB_NAMESPACE
    if [ -z "${ENTRY:-}${JOB_INPUT:-}" ]; then find_config_dir "$@"; fi
    say "job $JOB_NAMESPACE/$JOB_NAME, ${CONF_PADDLE_GRADIENT_NUM:+$CONF_PADDLE_GRADIENT_NUM trainers, }volume $JOB_PATH"
    if [ -n "${ENTRY:-}" ]; then
        stage_program
    elif [ -n "${JOB_INPUT:-}" ]; then
        fetch_config
    else
        stage_config
    fi
    set_home_and_tmp
    if [ -z "${ENTRY:-}" ]; then choose_config "$@"; fi
    # flags that are among the arguments are omitted here, so each flag occurs only once in the command line. A program of
    # ENTRY gets them as PADDLE_INIT_X, and has no config
    local flags=() pair
    for pair in "dot_period=${DOT_PERIOD:-10}" "log_period=${LOG_PERIOD:-50}" \
        "num_passes=${NUM_PASSES:-${PADDLE_INIT_NUM_PASSES:-10}}" \
        "trainer_count=${TRAINER_COUNT:-${PADDLE_INIT_TRAINER_COUNT:-1}}" "saving_period=${SAVING_PERIOD:-1}" \
        "local=${LOCAL:-0}" "config=${TRAIN_CONFIG:-}" "use_gpu=${USE_GPU:-${PADDLE_INIT_USE_GPU:-0}}"; do
        if [ -n "${ENTRY:-}" ] && [ "${pair%%=*}" = config ]; then continue; fi
        has_flag "${pair%%=*}" "$@" || flags+=("--$pair")
    done
    say "exec start_paddle.py ${flags[*]} $*"
    exec python3 "$here/start_paddle.py" "${flags[@]}" "$@"
}

# is_sourced: succeeds in `. start.sh`, and fails in `bash start.sh` and in `./start.sh`
is_sourced() { [ "${#FUNCNAME[@]}" -ge 2 ] && [ "${FUNCNAME[1]}" = source ]; }

is_sourced || main "$@"
