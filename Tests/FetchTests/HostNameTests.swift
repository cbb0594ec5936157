import CMalloc
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

  @Test("is the same read again")
  func again() {
    for text in ["Bücher.example.", "xn--bcher-kva.example", "0x7f.1", "１２７.0.0.1"] {
      let host = HostName(text)
      #expect(host != nil)
      #expect(host.flatMap { HostName($0.text) } == host)
    }
  }
}
