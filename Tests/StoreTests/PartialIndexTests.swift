import Jobs
import Testing

@testable import Images

@Suite("The index of partial transfers")
struct PartialIndexTests {
  private static func key(_ number: Int) -> Fingerprint { .sample("\(number)") }

  /// Stores a transfer named by its number, and returns the names to delete.
  private func keep(_ number: Int, _ bytes: Int, in kept: inout PartialIndex) -> [String] {
    kept.insert(PartialIndex.Entry(name: "\(number)", bytes: bytes), for: Self.key(number))
  }

  @Test("the oldest transfers are removed until the sum is within the limit")
  func limit() {
    var kept = PartialIndex(maxBytes: 100)
    #expect(keep(1, 40, in: &kept) == [])
    #expect(keep(2, 40, in: &kept) == [])
    #expect(keep(3, 20, in: &kept) == [])
    #expect(keep(4, 50, in: &kept) == ["1", "2"])
    #expect(kept.bytes == 70)
    #expect(keep(5, 100, in: &kept) == ["3", "4"])
    #expect(kept.bytes == 100)
  }

  @Test("a transfer larger than the limit is not stored, and removes no other")
  func tooLarge() {
    var kept = PartialIndex(maxBytes: 100)
    _ = keep(1, 40, in: &kept)
    #expect(keep(2, 101, in: &kept) == ["2"])
    #expect(kept.bytes == 40)
    #expect(kept.remove(Self.key(2)) == nil)
  }

  @Test("a limit of zero stores nothing")
  func none() {
    var kept = PartialIndex(maxBytes: 0)
    #expect(keep(1, 1, in: &kept) == ["1"])
    #expect(kept.bytes == 0)
  }

  @Test("a transfer that is taken and stored again becomes the newest")
  func renewed() {
    var kept = PartialIndex(maxBytes: 100)
    for number in 1...4 { _ = keep(number, 25, in: &kept) }
    #expect(kept.remove(Self.key(1))?.name == "1")
    #expect(kept.remove(Self.key(1)) == nil)
    #expect(kept.bytes == 75)
    #expect(keep(1, 25, in: &kept) == [])
    #expect(keep(5, 25, in: &kept) == ["2"])
  }

  @Test("the number of transfers is limited, however small they are")
  func count() {
    var kept = PartialIndex(maxBytes: 1_000_000, maxCount: 3)
    for number in 1...3 { #expect(keep(number, 1, in: &kept) == []) }
    #expect(keep(4, 1, in: &kept) == ["1"])
  }

  @Test("thousands of replacements lose no transfer and count correctly")
  func renewals() {
    var kept = PartialIndex(maxBytes: 1_000)
    for round in 0..<5_000 {
      let number = round % 7
      let gone = keep(number, round % 100 + 1, in: &kept)
      #expect(gone == (round < 7 ? [] : ["\(number)"]))
    }
    var sum = 0
    for number in 0..<7 { sum += kept.remove(Self.key(number))?.bytes ?? 0 }
    #expect(sum == (4_993..<5_000).map { $0 % 100 + 1 }.reduce(0, +))
    #expect(kept.bytes == 0)
  }
}
