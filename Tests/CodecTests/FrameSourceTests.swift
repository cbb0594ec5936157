import Jobs
import TestSupport
import Testing

@testable import Codec

@Suite("The frames of an animation")
struct FrameSourceTests {
  @Test(
    "the frames of an animation share one color transform",
    arguments: ["animated.webp", "animated.gif"])
  func transform(name: String) throws {
    let file = Fixtures.image(name)
    let image = try #require(Decoding(file).description)
    let source = try FrameSource(file, image)
    let first = source.layout.transform
    while true {
      switch try source.next() {
      case .notYet: continue
      case .frame: #expect(source.layout.transform === first)
      case .end: return
      }
    }
  }
}
