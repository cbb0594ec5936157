import Codec
import Jobs
import TestSupport
import Testing

@Suite("The time limit of a step")
struct StepTimeTests {
  private static func most(
    _ format: ImageFormat, _ width: Int, _ height: Int, _ variants: [VariantRequest] = []
  ) -> Duration {
    let header = ImageHeader(format: format, width: width, height: height, decodingMemory: 0)
    return StepTime.most(of: header, variants)
  }

  private static func variant(_ format: OutputFormat, width: Int? = nil) -> VariantRequest {
    var request = VariantRequest(name: "any")
    (request.format, request.width) = (format, width)
    return request
  }

  @Test(
    "the time limit of a step depends on the pixels read and written",
    arguments: ImageFormat.allCases)
  func pixels(format: ImageFormat) {
    let small = Self.most(format, 16, 17)
    #expect(small > .zero && small < .milliseconds(10))
    #expect(Self.most(format, 1_600, 1_700) == small * 10_000)
    for output in OutputFormat.allCases {
      let variant = Self.variant(output)
      #expect(Self.most(format, 16, 17, [variant, variant]) > Self.most(format, 16, 17, [variant]))
      // Includes time for the tables of a color profile.
      #expect(Self.most(format, 16, 17, [variant]) > small + .seconds(1))
    }
  }

  @Test("the time limit of a step is finite for the largest image")
  func extremes() {
    var variant = Self.variant(.avif, width: .max)
    (variant.height, variant.enlarge, variant.fit) = (.max, true, .fill)
    let most = Self.most(.avif, Int(Int32.max), Int(Int32.max), [variant])
    #expect(most > .seconds(3_600))
  }

  @Test(
    "the time limit of a step is much longer than real steps take",
    arguments: [
      "flat-paeth.png", "flat-progressive.jpg", "flat.gif", "flat-lossless.webp", "photo.jpg",
      "photo.webp", "grid.heic", "small.jxl", "layers.jxl", "deep.avif",
    ])
  func steps(name: String) throws {
    let bytes = Fixtures.image(name)
    for format in [OutputFormat?.none, .jpeg, .png, .webp, .avif] {
      let variants = format.map { [Self.variant($0, width: 600)] } ?? []
      let decoding = Decoding(bytes, by: StreamingCodec(), variants: variants)
      let header = try #require(decoding.headers.first)
      // The minimum for any step.
      let least = Duration.milliseconds(100)
      #expect(decoding.longestStep < max(StepTime.most(of: header, variants), least))
    }
  }
  @Test("the time limit includes the tables of a color profile once for all variants")
  func profile() throws {
    let bytes = PillowJudge.source("inks-profile.jpg")
    let formats: [OutputFormat] = [.jpeg, .png, .webp, .jpeg]
    let variants = formats.map { Self.variant($0, width: 100) }
    let decoding = Decoding(bytes, by: StreamingCodec(), variants: variants)
    let header = try #require(decoding.headers.first)
    let most = StepTime.most(of: header, variants)
    #expect(decoding.longestStep < most)
    let one = StepTime.most(of: header, Array(variants.prefix(1)))
    #expect(most - one < .seconds(1), "the tables count once for all variants")
  }
}
