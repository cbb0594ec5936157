import Testing

@testable import Engine
@testable import Jobs

@Suite("Images in memory")
struct ImageMemoryTests {
  private func digest(_ number: UInt8) -> ImageDigest {
    ImageDigest(bytes: [UInt8](repeating: number, count: 32))!
  }

  private func image(_ count: Int) -> [UInt8] { [UInt8](repeating: 7, count: count) }

  @Test("the least recently used images are evicted first, and the limit is never exceeded")
  func order() {
    let memory = ImageMemory(capacity: 800)
    for number in 0..<8 as Range<UInt8> { memory.insert(image(100), as: digest(number)) }
    #expect(memory.bytes == 800)
    #expect(memory.bytes(of: digest(0))?.count == 100)
    memory.insert(image(50), as: digest(9))
    #expect(memory.bytes == 750)
    #expect(memory.contains(digest(0)) && !memory.contains(digest(1)) && memory.contains(digest(2)))
  }

  @Test("an image that would evict most others is not cached")
  func tooLarge() {
    let memory = ImageMemory(capacity: 800)
    memory.insert(image(101), as: digest(1))
    #expect(memory.bytes == 0 && memory.bytes(of: digest(1)) == nil)
  }

  @Test("a large image is never cached, because a slow client would hold it in memory")
  func large() {
    let memory = ImageMemory(capacity: 1 << 30)
    memory.insert(image(128 << 10), as: digest(1))
    memory.insert(image(128 << 10 + 1), as: digest(2))
    #expect(memory.contains(digest(1)) && !memory.contains(digest(2)))
  }

  @Test("nothing is cached without capacity")
  func off() {
    let memory = ImageMemory(capacity: 0)
    memory.insert(image(1), as: digest(1))
    #expect(memory.bytes == 0)
  }

  @Test("an image inserted twice counts once, and a removed one does not count")
  func again() {
    let memory = ImageMemory(capacity: 800)
    memory.insert(image(100), as: digest(1))
    memory.insert(image(80), as: digest(1))
    #expect(memory.bytes == 80)
    memory.remove(digest(1))
    memory.remove(digest(1))
    #expect(memory.bytes == 0)
  }

  @Test("frequent use of a few images does not evict the others")
  func longUse() {
    let memory = ImageMemory(capacity: 800)
    for number in 0..<3 as Range<UInt8> { memory.insert(image(100), as: digest(number)) }
    for turn in 0..<10_000 { _ = memory.bytes(of: digest(UInt8(turn % 3))) }
    memory.insert(image(100), as: digest(9))
    #expect(memory.contains(digest(0)))
  }
}
