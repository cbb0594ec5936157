import Jobs
import Testing

@Suite("The text of a timestamp")
struct TimestampTextTests {
  private let now = Timestamp(milliseconds: 1_795_252_800_000)  // 2026-11-21

  @Test(
    "a timestamp is written as RFC 3339 in UTC, and as an HTTP date in header fields",
    arguments: [
      (0, "1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
      (784_111_777_042, "1994-11-06T08:49:37.042Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
      (951_782_400_123, "2000-02-29T00:00:00.123Z", "Tue, 29 Feb 2000 00:00:00 GMT"),
      (1_798_761_599_999, "2026-12-31T23:59:59.999Z", "Thu, 31 Dec 2026 23:59:59 GMT"),
      (4_107_542_400_000, "2100-03-01T00:00:00.000Z", "Mon, 01 Mar 2100 00:00:00 GMT"),
    ])
  func texts(milliseconds: Int64, text: String, date: String) {
    let moment = Timestamp(milliseconds: milliseconds)
    #expect(moment.description == text)
    #expect(moment.httpDate == date)
    let read = Timestamp(httpDate: date, now: now)
    #expect(read?.milliseconds == milliseconds / 1000 * 1000)
  }

  @Test("an HTTP date is parsed in its three forms, and other texts are refused")
  func headerFields() {
    for text in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
      #expect(Timestamp(httpDate: text, now: now)?.milliseconds == 784_111_777_000)
    }
    #expect(Timestamp(httpDate: "0", now: now) == nil)
  }

  @Test("a timestamp after the year 9999 is written as the last moment of that year")
  func endOfTime() {
    #expect(Timestamp(milliseconds: .max).description == "9999-12-31T23:59:59.999Z")
    #expect(Timestamp(milliseconds: .min).description == "0000-01-01T00:00:00.000Z")
    #expect(Timestamp(milliseconds: -1000).description == "1969-12-31T23:59:59.000Z")
    #expect(Timestamp(milliseconds: .max).httpDate == "Fri, 31 Dec 9999 23:59:59 GMT")
  }
}
