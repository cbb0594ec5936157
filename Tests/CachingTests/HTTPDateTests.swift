import Caching
import Testing

@Suite("An HTTP date")
struct HTTPDateTests {
  @Test(
    "an HTTP date is read in all three forms",
    arguments: [
      "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
      "Sun Nov 06 08:49:37 1994",
    ])
  func forms(text: String) {
    #expect(HTTPDate(text, now: noon)?.seconds == 784_111_777)
  }

  @Test(
    "an HTTP date is read in any case",
    arguments: [
      "SUN, 06 Nov 1994 08:49:37 GMT", "Sun, 06 NOV 1994 08:49:37 GMT",
      "Sun, 06 Nov 1994 08:49:37 gMT", "sunday, 06-nov-94 08:49:37 gmt",
    ])
  func anyCase(text: String) {
    #expect(HTTPDate(text, now: noon)?.seconds == 784_111_777)
  }

  @Test(
    "an HTTP date with a two-digit year is at most 50 years ahead",
    arguments: [(76, 2076), (77, 1977)])
  func twoDigits(written: Int, meant: Int) {
    let date = HTTPDate("Sunday, 06-Nov-\(written) 08:49:37 GMT", now: noon)
    #expect(date?.description.contains(" \(meant) ") == true)
  }

  @Test(
    "an HTTP date with a two-digit year may be in the next century",
    arguments: [(99, 2099), (49, 2149), (50, 2050)])
  func endOfCentury(written: Int, meant: Int) throws {
    let now = try #require(HTTPDate("Thu, 01 Jan 2099 00:00:00 GMT", now: noon)).milliseconds
    let date = HTTPDate("Sunday, 06-Nov-\(written) 08:49:37 GMT", now: now)
    #expect(date?.description.contains(" \(meant) ") == true)
  }

  @Test("an HTTP date is written in the preferred form and can be read again")
  func written() {
    #expect(
      HTTPDate(milliseconds: 784_111_777_999).description == "Sun, 06 Nov 1994 08:49:37 GMT")
    for day in stride(from: Int64(0), to: 40_000, by: 13) {
      let date = HTTPDate(milliseconds: day * 86_400_000 + 3_723_000)
      #expect(HTTPDate(date.description, now: noon) == date)
    }
  }

  @Test("an HTTP date is limited to the years 1970 to 9999")
  func ends() {
    #expect(HTTPDate(milliseconds: .max).description == "Fri, 31 Dec 9999 23:59:59 GMT")
    #expect(HTTPDate(milliseconds: .min).description == "Thu, 01 Jan 1970 00:00:00 GMT")
  }

  @Test(
    "an HTTP date is not read from any other text",
    arguments: [
      "", "0", "-1", "x y z a b c", "Thu, 01 Jan 1970 00:00:00",
      "Thu, 01 Jan 99999999999999999999 00:00:00 GMT", "Wed, 31 Dec 1969 23:59:59 GMT",
      "Thu, 18 Aug 2050 02:01:18 UTC", "Thu, 18 Aug 2050 02:01:18 AEST",
      "Thu, 18 Aug 50 02:01:18 GMT", "Thu 18 Aug 2050 02:01:18 GMT",
      "Thu, 18  Aug  2050 02:01:18 GMT", "Thu, 18-Aug-2050 02:01:18 GMT",
      "Thu, 18 Aug 2050 02.01.18 GMT", "Thu, 18 Aug 2050 2:01:18 GMT",
      "Thu, 18 Aug 2050 24:00:00 GMT", "Thu, 18 Aug 2050 23:60:00 GMT",
      "Thu, 32 Aug 2050 02:01:18 GMT", "Thu, 30 Feb 2050 02:01:18 GMT",
      "Thu, 18 Aug 2050 02:01:18 GMT, Thu, 18 Aug 2050 02:01:18 GMT",
      "Thu, +8 Aug 2050 02:01:18 GMT",
      "1234, 18 Aug 2050 02:01:18 GMT", "Thu Aug 8 02:01:18 2050",
    ])
  func malformed(text: String) {
    #expect(HTTPDate(text, now: noon) == nil)
  }
}
