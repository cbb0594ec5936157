import CMalloc
import Jobs
import Testing

@testable import Fetch

@Suite("A host name")
struct HostNameTests {
  @Test("an invalid host name leaks no memory, however long it is")
  func memory() {
    // The label has more than 63 bytes.
    let host = "ü" + String(repeating: "a", count: 8_000) + ".example"
    // A leak would be 32 MB each time. Other tests use memory at the same time, but not always more of it.
    let growth = (0..<3).map { _ in
      let before = mallinfo2().uordblks
      for _ in 0..<4_000 { #expect(HostName(host) == nil) }
      return Int(mallinfo2().uordblks) - Int(before)
    }
    #expect(growth.min()! < 16 << 20, "\(growth)")
  }

  @Test(
    "all spellings of a host are one origin",
    arguments: [
      (
        "127.0.0.1",
        [
          "127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0X7F.0.0.1", "0x7f000001", "2130706433",
          "017700000001", "0177.0.0.1", "127.0.0.1.", "0x7f.1.", "１２７.0.0.1", "127。0。0。1",
          "①②⑦.1", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]",
        ]
      ),
      (
        "localhost",
        ["localhost", "LOCALHOST", "localhost.", "ｌocalhost", "ＬＯＣＡＬＨＯＳＴ．", "ℓocalhost"]
      ),
      ("[2001:db8::1]", ["[2001:db8::1]", "[2001:DB8:0:0::0001]", "[2001:db8::0.0.0.1]"]),
      (
        "xn--bcher-kva.example",
        [
          "bücher.example", "BÜCHER.example", "bu\u{308}cher.example.", "xn--bcher-kva.example",
          "XN--BCHER-KVA.EXAMPLE.",
        ]
      ),
      ("1.2.3.4.5", ["1.2.3.4.5"]), ("a..b", ["a..b"]),
    ])
  func spellings(host: String, spellings: [String]) throws {
    let fetcher = try FetchTests.fetcher()
    for spelling in spellings {
      let url = try #require(SourceURL("http://\(spelling):81/"), "\(spelling)")
      #expect(fetcher.origin(of: url) == "http://\(host):81", "\(spelling)")
      // A job stores the spellings of unusual hosts only.
      var submission = Submission(source: .url(url, lowData: nil))
      submission.spellHosts(by: fetcher)
      #expect(submission.origin(of: url) == fetcher.origin(of: url), "\(spelling)")
    }
  }

  @Test("a normalized host is not changed by normalizing it again")
  func again() {
    for text in ["Bücher.example.", "xn--bcher-kva.example", "0x7f.1", "１２７.0.0.1"] {
      let host = HostName(text)
      #expect(host != nil)
      #expect(host.flatMap { HostName($0.text) } == host)
    }
  }
}
