# Ports with two identifiers, each of which leads over another cable between two switches.
step 60 'functions for identifiers' 'cat >> /run/osm/functions <<"LIST"
# by SWITCH IDENTIFIER: the port by which a switch sends what is for an identifier.
by() {
    ibroute -G "0x0002c90200000${1}00" | awk -v lid="$(printf "0x%04x" "$2")" "\$1 \"\" == lid \"\" { print \$2 + 0 }"
}
# spread: whether the ways of both ends lead over both cables.
spread() { [ "$(ways | sort | tr "\n" " ")" = "3 3 4 4 " ] || [ "$(ways | sort | tr "\n" " ")" = "3 4 4 3 " ]; }
LIST
'
