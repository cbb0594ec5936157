import Codec
import Jobs
import TestSupport
import Testing

@Suite("How long a step may compute for")
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

  @Test("goes by the pixels that are read and written", arguments: ImageFormat.allCases)
  func pixels(format: ImageFormat) {
    let small = Self.most(format, 16, 17)
    #expect(small > .zero && small < .milliseconds(10))
    #expect(Self.most(format, 1_600, 1_700) == small * 10_000)
    for output in OutputFormat.allCases {
      let variant = Self.variant(output)
      #expect(Self.most(format, 16, 17, [variant, variant]) > Self.most(format, 16, 17, [variant]))
      // A colour profile may have tables.
      #expect(Self.most(format, 16, 17, [variant]) > small + .seconds(1))
    }
  }

  @Test("is a number for the largest of all")
  func extremes() {
    var variant = Self.variant(.avif, width: .max)
    (variant.height, variant.enlarge, variant.fit) = (.max, true, .fill)
    let most = Self.most(.avif, Int(Int32.max), Int(Int32.max), [variant])
    #expect(most > .seconds(3_600))
  }

  @Test(
    "is far beyond what they take",
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
      // What any step may take.
      let least = Duration.milliseconds(100)
      #expect(decoding.longestStep < max(StepTime.most(of: header, variants), least))
    }
  }
  @Test("holds for the tables of a colour profile, which variants share")
  func profile() throws {
    let bytes = PillowJudge.source("inks-profile.jpg")
    let formats: [OutputFormat] = [.jpeg, .png, .webp, .jpeg]
    let variants = formats.map { Self.variant($0, width: 100) }
    let decoding = Decoding(bytes, by: StreamingCodec(), variants: variants)
    let header = try #require(decoding.headers.first)
    let most = StepTime.most(of: header, variants)
    #expect(decoding.longestStep < most)
    let one = StepTime.most(of: header, Array(variants.prefix(1)))
    #expect(most - one < .seconds(1), "once for all")
  }
}
