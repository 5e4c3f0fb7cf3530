#!/bin/sh
# Runs every test: go vet, then go test, with the race detector where it can be
# built. Arguments go to go test; without a package among them, all are tested:
#
#   ./test.sh
#   ./test.sh -run Proxy -v ./internal/testdb
#   ./test.sh --compose        against PostgreSQL and SQL Server in Docker
#
# Needs Go. Installs PostgreSQL's server with apt-get when there is none. Reads
# ~/.config/weir/test.env, if it is there, as README.md says; the environment
# wins over it.
set -eu
cd "$(dirname "$0")"

compose=
if [ "${1:-}" = --compose ]; then
	compose=1
	shift
fi

# read_settings takes what the environment does not have from the user's file.
read_settings() {
	file=${XDG_CONFIG_HOME:-${HOME:-}/.config}/weir/test.env
	[ -f "$file" ] || return 0
	echo "test.sh: settings from $file"
	while IFS= read -r line || [ -n "$line" ]; do
		key=${line%%=*}
		case $line in
		'' | '#'*) continue ;;
		WEIR_TEST_POSTGRES_URL=* | WEIR_TEST_SQLSERVER_URL=* | WEIR_TEST_SQLSERVER_START=* | WEIR_TEST_SQLSERVER_STOP=*) ;;
		*)
			echo "test.sh: $file: unknown setting $key" >&2
			exit 1
			;;
		esac
		eval "is_set=\${$key+x}"
		# shellcheck disable=SC2154 # the eval sets it
		[ -n "$is_set" ] || export "$key=${line#*=}"
	done <"$file"
}

# start_containers starts the servers of compose.yaml, whose ports and passwords
# the environment may set.
start_containers() {
	echo "test.sh: docker compose up --detach --wait postgres sqlserver"
	docker compose up --detach --wait postgres sqlserver
	postgres=$(docker compose port postgres 5432)
	sqlserver=$(docker compose port sqlserver 1433)
	export WEIR_TEST_POSTGRES_URL="postgres://weir:${POSTGRES_PASSWORD:-weir}@$postgres/shop?sslmode=disable"
	export WEIR_TEST_SQLSERVER_URL="sqlserver://sa:${MSSQL_SA_PASSWORD:-Weir-2022}@$sqlserver?encrypt=disable"
	echo "test.sh: they stay up: docker compose stop ends them, docker compose down --volumes removes them"
}

# start_sqlserver starts the server of WEIR_TEST_SQLSERVER_URL by the user's
# command, if there is one and the server does not answer.
sqlserver_started=
start_sqlserver() {
	[ -n "${WEIR_TEST_SQLSERVER_URL:-}" ] && [ -n "${WEIR_TEST_SQLSERVER_START:-}" ] || return 0
	go build -o "$work/await" ./internal/testdb/awaitsqlserver
	! "$work/await" 0s 2>/dev/null || return 0
	echo "test.sh: starting SQL Server: WEIR_TEST_SQLSERVER_START"
	sqlserver_started=1
	sh -c "$WEIR_TEST_SQLSERVER_START" </dev/null >"$work/start" 2>&1 &
	if ! "$work/await" 2m; then
		cat "$work/start" >&2
		echo "test.sh: SQL Server does not answer two minutes after WEIR_TEST_SQLSERVER_START: start it by hand, or set WEIR_TEST_SQLSERVER_URL to nothing to test without it" >&2
		exit 1
	fi
}

# shellcheck disable=SC2317 # a trap calls it
clean_up() {
	if [ -n "$sqlserver_started" ] && [ -n "${WEIR_TEST_SQLSERVER_STOP:-}" ]; then
		sh -c "$WEIR_TEST_SQLSERVER_STOP" </dev/null >/dev/null || echo "test.sh: WEIR_TEST_SQLSERVER_STOP failed" >&2
	fi
	rm -rf "$work"
}

if ! command -v go >/dev/null 2>&1; then
	PATH=$PATH:/usr/local/go/bin
	if ! command -v go >/dev/null 2>&1; then
		echo "test.sh: Go is missing: install it from https://go.dev/dl/ and put its bin folder into PATH" >&2
		exit 1
	fi
fi

# has_postgres looks where internal/testdb looks.
has_postgres() {
	if path=$(command -v postgres); then
		path=$(readlink -f "$path" || echo "$path")
		[ -x "$(dirname "$path")/initdb" ] && return
	fi
	for initdb in /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb \
		/opt/homebrew/opt/postgresql*/bin/initdb /usr/local/opt/postgresql*/bin/initdb \
		/home/linuxbrew/.linuxbrew/opt/postgresql*/bin/initdb \
		/Applications/Postgres.app/Contents/Versions/*/bin/initdb; do
		[ -x "$initdb" ] && [ -x "$(dirname "$initdb")/postgres" ] && return
	done
	return 1
}

install_postgres() {
	sudo=
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "test.sh: no PostgreSQL server and no apt-get: install PostgreSQL 15 or later, or set WEIR_TEST_POSTGRES_URL" >&2
		return
	fi
	if [ "$(id -u)" -ne 0 ]; then
		if ! command -v sudo >/dev/null 2>&1; then
			echo "test.sh: no PostgreSQL server, and neither root nor sudo to install it: apt-get install postgresql, or set WEIR_TEST_POSTGRES_URL" >&2
			return
		fi
		sudo=sudo
	fi
	echo "test.sh: no PostgreSQL server: installing the package postgresql with apt-get. Its service is not started now: the tests start servers of their own."
	# Debian asks this script before a package starts its service.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		trap '$sudo rm -f $policy' EXIT
		trap 'exit 1' HUP INT TERM
		printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
		$sudo chmod 755 $policy
	fi
	if $sudo apt-get update -q && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql; then
		:
	else
		echo "test.sh: apt-get could not install postgresql; tests that need it are skipped" >&2
	fi
	$sudo rm -f $policy
	trap - EXIT HUP INT TERM
}

if [ -n "$compose" ]; then
	start_containers
else
	read_settings
fi
if [ -z "${WEIR_TEST_POSTGRES_URL:-}" ] && ! has_postgres; then
	install_postgres
fi

race=-race
compiler=$(go env CC)
if [ "$(go env CGO_ENABLED)" != 1 ] || ! command -v "${compiler%% *}" >/dev/null 2>&1; then
	race=
	echo "test.sh: no C compiler for cgo: the tests run without the race detector"
fi

packages=./...
for arg in "$@"; do
	case $arg in
	. | ./* | ../* | github.com/*) packages= ;;
	-args) break ;;
	esac
done

echo "test.sh: go vet ./..."
go vet ./...

work=$(mktemp -d)
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
start_sqlserver

summary=$work/summary
touch "$summary"
export WEIR_TEST_SUMMARY="$summary"
# -count=1: a result is worth nothing for another server than the one it had.
# -timeout: a package's tests on a slow SQL Server, beside the others, may take longer than go test's ten minutes.
echo "test.sh: go test -count=1 -timeout 30m${race:+ $race}${packages:+ $packages}${*:+ $*}"
code=0
# shellcheck disable=SC2086 # empty ones vanish
go test -count=1 -timeout 30m $race $packages "$@" || code=$?

echo
echo "What ran where:"
sed -n 's/^[^ ]*: \([a-z]*: ran: .*\) (tests: \([0-9]*\))$/\2 \1/p' "$summary" |
	awk '{ n = $1; sub(/^[0-9]+ /, ""); sum[$0] += n } END { for (line in sum) printf "  %s (tests: %d)\n", line, sum[line] }' | sort
echo "What was not covered:"
{
	grep ': skipped: ' "$summary" | sed 's/^/  /' | sort || :
	[ -n "$race" ] || echo "  data races: no C compiler"
	# The tests themselves say so where any wants it.
	[ -n "${WEIR_TEST_SQLSERVER_URL:-}" ] || grep -q ': sqlserver: skipped: ' "$summary" || echo "  sqlserver: WEIR_TEST_SQLSERVER_URL is not set"
} >"$summary.not"
if [ -s "$summary.not" ]; then cat "$summary.not"; else echo "  nothing"; fi
exit $code
