import Jobs
import Synchronization
import TestSupport

/// A fake codec whose images claim to be JPEGs.
struct JPEGCodec: ImageCodec {
  let fake = FakeCodec()
  /// Whether it makes variants during the decode.
  var makesVariants = false

  func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder {
    let decoder = fake.makeDecoder(limits: limits, variants: variants)
    return Decoder(decoder, makesVariants ? variants : [])
  }

  private final class Decoder: ImageDecoder {
    private let fake: any ImageDecoder
    let variants: [[UInt8]?]

    init(_ fake: any ImageDecoder, _ variants: [VariantRequest]) {
      self.fake = fake
      self.variants = variants.map { Array("\($0)".utf8) }
    }

    func append(_ bytes: [UInt8]) { fake.append(bytes) }

    func finishInput() { fake.finishInput() }

    func pause() async -> Duration { await fake.pause() }

    func step() throws(CodecError) -> DecodeStep {
      let step = try fake.step()
      guard case .finished(var image) = step else { return step }
      image.format = .jpeg
      return .finished(image)
    }
  }
}

/// A fake renderer that reads images at an eighth of their size for narrow variants, and counts how often it
/// is asked for a scale.
final class ScalingRenderer: ImageRenderer {
  let fake = FakeRenderer()
  private let asked = Atomic(0)

  /// How often it was asked for a scale.
  var looks: Int { asked.load(ordering: .relaxed) }

  var formats: Set<OutputFormat> { fake.formats }

  func shrink(for variant: Variant, from image: ImageDescription) -> Int {
    asked.add(1, ordering: .relaxed)
    return (variant.width ?? image.width) < 8 ? 8 : 1
  }

  func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int) {
    fake.size(of: variant, from: image)
  }

  func memory(for variants: [Variant], from image: ImageDescription) -> Int {
    fake.memory(for: variants, from: image)
  }

  func render(
    _ bytes: [UInt8], of image: ImageDescription, as variants: [Variant]
  ) -> any Rendering {
    fake.render(bytes, of: image, as: variants)
  }
}
