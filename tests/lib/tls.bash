# A certificate authority for one test file, and free TCP ports.

# make_ca DIR: ca.pem, ca.key.
make_ca() {
	mkdir -p "$1"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1/ca.key" -out "$1/ca.pem" -days 30 -subj "/CN=Test CA ${1##*/}" 2>/dev/null
}

# make_cert DIR NAME SUBJECT-ALT-NAMES [DAYS]: NAME.pem and NAME.key, signed by DIR's authority.
make_cert() {
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1/$2.key" -out "$1/$2.csr" -subj "/CN=$2" 2>/dev/null
	printf 'subjectAltName=%s\n' "$3" >"$1/$2.ext"
	openssl x509 -req -in "$1/$2.csr" -CA "$1/ca.pem" -CAkey "$1/ca.key" -CAcreateserial -days "${4:-30}" -extfile "$1/$2.ext" -out "$1/$2.pem" 2>/dev/null
}

# A port nobody listens on now.
free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# The certificate a server shows: its serial number.
shown_serial() {
	openssl s_client -connect "$1" -CAfile "$2" </dev/null 2>/dev/null | openssl x509 -noout -serial
}
