/* engine/constrain/schema_format.c - formats of strings, as regular expressions. 29 February of any
 * year and second 60 pass. Sources: RFC 3339 (date, time, duration), 5321 (email, without quoted
 * local parts), 1123 (hostname), 4291 (ipv6), 4122 (uuid), 3986 (uri). */
#include "engine/constrain/schema.h"

#define DATE                                                                                       \
    "\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"   \
    "02-(?:0[1-9]|[12]\\d))"
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:(?:[0-5]\\d|60)(?:\\.\\d+)?"                                      \
    "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define CLOCK "(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H "[0-9A-Fa-f]{1,4}"
#define LAST32 "(?:" H ":" H "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H ":){6}" LAST32 "|::(?:" H ":){5}" LAST32 "|(?:" H ")?::(?:" H ":){4}" LAST32        \
    "|(?:" H "(?::" H ")?)?::(?:" H ":){3}" LAST32 "|(?:" H "(?::" H "){0,2})?::(?:" H             \
    ":){2}" LAST32 "|(?:" H "(?::" H "){0,3})?::" H ":" LAST32 "|(?:" H "(?::" H                   \
    "){0,4})?::" LAST32 "|(?:" H "(?::" H "){0,5})?::" H "|(?:" H "(?::" H "){0,6})?::)"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define HEX "[0-9A-Fa-f]"
#define ESCAPED "%" HEX HEX
#define PLAIN "[A-Za-z0-9._~!$&'()*+,;=-]"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" ESCAPED ")"
#define USER "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" ESCAPED ")*@)?"
#define HOST                                                                                       \
    "(?:\\[(?:" IPV6 "|[vV]" HEX "+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(?:" PLAIN "|" ESCAPED ")*" \
    ")"
#define PATHS "(?:/" PCHAR "*)*"

const char *weir_schema_format_pattern(const weir_tree *format)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        { "date-time", "^" DATE "[Tt]" TIME "$" },
        { "date", "^" DATE "$" },
        { "time", "^" TIME "$" },
        { "duration",
          "^P(?:(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)" CLOCK "?|" CLOCK "|\\d+W)$" },
        { "email", "^" ATOM "(?:\\." ATOM ")*@(?:" LABEL "(?:\\." LABEL ")*|\\[(?:" IPV4
                   "|IPv6:" IPV6 ")\\])$" },
        { "hostname", "^" LABEL "(?:\\." LABEL ")*$" },
        { "ipv4", "^" IPV4 "$" },
        { "ipv6", "^" IPV6 "$" },
        { "uuid", "^" HEX "{8}(?:-" HEX "{4}){3}-" HEX "{12}$" },
        { "uri",
          "^[A-Za-z][A-Za-z0-9+.-]*:(?://" USER HOST "(?::\\d*)?" PATHS "|/(?:" PCHAR "+" PATHS
          ")?|" PCHAR "+" PATHS "|)(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?$" },
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (weir_tree_is(format, formats[i].name)) return formats[i].pattern;
    }
    return NULL;
}
