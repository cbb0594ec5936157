import Jobs
import Testing

@Suite("A date of HTTP")
struct HTTPDateTests {
  private let now = Timestamp(milliseconds: 1_795_252_800_000)  // 2026-11-21

  @Test(
    "is read in all three forms",
    arguments: [
      "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
    ])
  func forms(text: String) {
    #expect(HTTPDate(text, now: now)?.seconds == 784_111_777)
  }

  @Test("a year of two digits is at most 50 years ahead")
  func twoDigits() {
    #expect(
      HTTPDate("Sunday, 06-Nov-76 08:49:37 GMT", now: now)?.description.contains("2076") == true)
    #expect(
      HTTPDate("Sunday, 06-Nov-77 08:49:37 GMT", now: now)?.description.contains("1977") == true)
  }

  @Test("is written in the preferred form")
  func written() {
    #expect(
      HTTPDate(Timestamp(milliseconds: 784_111_777_999)).description
        == "Sun, 06 Nov 1994 08:49:37 GMT")
    for day in stride(from: Int64(0), to: 40_000, by: 13) {
      let date = HTTPDate(Timestamp(milliseconds: day * 86_400_000 + 3_723_000))
      #expect(HTTPDate(date.description, now: now) == date)
    }
  }

  @Test(
    "is not read from anything else",
    arguments: [
      "", "0", "Thu, 01 Jan 1970 00:00:00", "Thu, 01 Jan 99999999999999999999 00:00:00 GMT",
      "Sun, 06 Nov 1994 08:49:37 PST", "Sun, 32 Nov 1994 08:49:37 GMT", "x y z a b c",
    ])
  func malformed(text: String) {
    #expect(HTTPDate(text, now: now) == nil)
  }

  @Test(
    "a moment's text is RFC 3339 in UTC with milliseconds, and its date the same to the second",
    arguments: [
      (0, "1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
      (784_111_777_042, "1994-11-06T08:49:37.042Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
      (951_782_400_123, "2000-02-29T00:00:00.123Z", "Tue, 29 Feb 2000 00:00:00 GMT"),
      (1_798_761_599_999, "2026-12-31T23:59:59.999Z", "Thu, 31 Dec 2026 23:59:59 GMT"),
      (4_107_542_400_000, "2100-03-01T00:00:00.000Z", "Mon, 01 Mar 2100 00:00:00 GMT"),
    ])
  func rfc3339(milliseconds: Int64, text: String, date: String) {
    let moment = Timestamp(milliseconds: milliseconds)
    #expect(moment.description == text)
    #expect(HTTPDate(moment).description == date)
    #expect(HTTPDate(date, now: now)?.seconds == milliseconds / 1000)
  }

  @Test("a moment that never comes is written as the last there is")
  func endOfTime() {
    #expect(Timestamp(milliseconds: .max).description == "9999-12-31T23:59:59.999Z")
    #expect(Timestamp(milliseconds: .min).description == "0000-01-01T00:00:00.000Z")
    #expect(Timestamp(milliseconds: -1000).description == "1969-12-31T23:59:59.000Z")
    #expect(HTTPDate(Timestamp(milliseconds: .max)).description == "Fri, 31 Dec 9999 23:59:59 GMT")
  }
}
