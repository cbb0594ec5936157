import CMalloc
import Jobs
import Testing

@testable import Fetch

@Suite("A host's name")
struct HostNameTests {
  @Test("that has no ASCII form leaves nothing in memory, however long it is and however often")
  func memory() {
    // A label of more than 63 bytes.
    let host = "ü" + String(repeating: "a", count: 8_000) + ".example"
    let before = mallinfo2().uordblks
    for _ in 0..<20_000 { #expect(HostName(host) == nil) }
    // They would be 160 MB; other tests have theirs.
    #expect(Int(mallinfo2().uordblks) - Int(before) < 80 << 20)
  }

  @Test(
    "is one for the limits of its origin, however it is spelled",
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
      // A job keeps what a plain host isn't asked for.
      var submission = Submission(source: .url(url, lowData: nil))
      submission.spellHosts(by: fetcher)
      #expect(submission.origin(of: url) == fetcher.origin(of: url), "\(spelling)")
    }
  }

  @Test("is the same read again")
  func again() {
    for text in ["Bücher.example.", "xn--bcher-kva.example", "0x7f.1", "１２７.0.0.1"] {
      let host = HostName(text)
      #expect(host != nil)
      #expect(host.flatMap { HostName($0.text) } == host)
    }
  }
}
