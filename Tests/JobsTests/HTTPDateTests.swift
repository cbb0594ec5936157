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
      "", "0", "Sun, 06 Nov 1994 08:49:37 PST", "Sun, 32 Nov 1994 08:49:37 GMT", "x y z a b c",
    ])
  func malformed(text: String) {
    #expect(HTTPDate(text, now: now) == nil)
  }

  @Test("a moment's text is RFC 3339 in UTC with milliseconds")
  func rfc3339() {
    #expect(Timestamp(milliseconds: 784_111_777_042).description == "1994-11-06T08:49:37.042Z")
    #expect(Timestamp(milliseconds: 951_827_696_000).description == "2000-02-29T12:34:56.000Z")
  }
}
