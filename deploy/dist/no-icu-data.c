/* An empty ICU data table, like the one in ICU's "stubdata" library. It replaces 34 MB of locales, calendars
 * and time zones, which imagefetch does not use. */
#include <stdint.h>

/* ICU 76, common/ucmndata.h: DataHeader and UDataOffsetTOC. */
__attribute__((aligned(16))) const struct {
  uint16_t header_size;
  uint8_t magic[2];
  uint16_t info_size, reserved_word;
  uint8_t is_big_endian, charset_family, size_of_char, reserved_byte;
  uint8_t data_format[4], format_version[4], data_version[4];
  uint8_t padding[8];
  uint32_t count, reserved;
  uint32_t names_and_data[4];
} no_icu_data = {32, {0xda, 0x27}, 20, 0, 0, 0, 2, 0, {'T', 'o', 'C', 'P'}, {1, 0, 0, 0}, {0}, {0}, 0, 0, {0}};
