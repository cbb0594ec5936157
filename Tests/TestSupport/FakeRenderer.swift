package import Jobs
import Synchronization

/// Renders variants in a few steps. Each result is a text that describes the request. It can be held and can be made to fail.
package final class FakeRenderer: ImageRenderer {
  private struct State {
    var heldAfter = Int.max
    var error: CodecError?
    var begun = 0
    var finished = 0
    var underWay = 0
    var mostUnderWay = 0
    var order: [Variant] = []
    var padding = 0
    var memory = 1_000
  }

  package let formats: Set<OutputFormat>
  private let state = Mutex(State())

  package init(formats: Set<OutputFormat> = [.jpeg, .png, .webp]) { self.formats = formats }

  /// Renderings that were started, each of one or several variants.
  package var begun: Int { state.withLock { $0.begun } }
  /// Renderings that produced an image.
  package var finished: Int { state.withLock { $0.finished } }
  /// Renderings in progress.
  package var underWay: Int { state.withLock { $0.underWay } }
  /// The maximum number of renderings in progress at one time.
  package var mostUnderWay: Int { state.withLock { $0.mostUnderWay } }
  /// The started renderings, in order.
  package var order: [Variant] { state.withLock { $0.order } }

  /// Sets whether renderings are held before their end.
  package func hold(_ isHeld: Bool = true) { state.withLock { $0.heldAfter = isHeld ? 0 : .max } }
  /// Lets at most this many renderings finish.
  package func hold(after count: Int) { state.withLock { $0.heldAfter = count } }
  /// Makes renderings fail from now on; nil to stop that.
  package func fail(with error: CodecError?) { state.withLock { $0.error = error } }
  /// Makes each image at least this many bytes long.
  package func pad(to bytes: Int) { state.withLock { $0.padding = bytes } }
  /// Sets the memory that a rendering reports.
  package func need(_ bytes: Int) { state.withLock { $0.memory = bytes } }

  /// The image that is produced.
  package static func picture(
    _ variant: Variant, of bytes: [UInt8], padding: Int = 0
  ) -> [UInt8] {
    let text = Array("\(variant) of \(bytes.count) bytes, the first \(bytes.first ?? 0)".utf8)
    return text + [UInt8](repeating: 0, count: max(0, padding - text.count))
  }

  package func size(of variant: Variant, from image: ImageDescription) -> (width: Int, height: Int)
  {
    let own =
      image.orientation > 4 ? (image.height, image.width) : (image.width, image.height)
    let (width, height) = (Double(own.0), Double(own.1))
    switch (variant.width.map(Double.init), variant.height.map(Double.init), variant.fit) {
    case (nil, nil, _): return own
    case (let wide?, let high?, .cover), (let wide?, let high?, .fill):
      return (Int(wide), Int(high))
    case (let wide, let high, let fit):
      let scale = min(wide.map { $0 / width } ?? .infinity, high.map { $0 / height } ?? .infinity)
      let bound = fit == .contain || fit == .scaleDown ? min(1, scale) : scale
      return (
        max(1, Int((width * bound).rounded())), max(1, Int((height * bound).rounded()))
      )
    }
  }

  package func memory(for variants: [Variant], from image: ImageDescription) -> Int {
    state.withLock { $0.memory } * variants.count
  }

  package func render(
    _ bytes: [UInt8], of image: ImageDescription, as variants: [Variant]
  ) -> any Rendering {
    Run(self, bytes, variants)
  }

  private final class Run: Rendering {
    private let renderer: FakeRenderer
    private let bytes: [UInt8]
    private let variants: [Variant]
    private var steps = 0

    init(_ renderer: FakeRenderer, _ bytes: [UInt8], _ variants: [Variant]) {
      self.renderer = renderer
      self.bytes = bytes
      self.variants = variants
      renderer.state.withLock { state in
        state.begun += 1
        state.underWay += 1
        state.mostUnderWay = max(state.mostUnderWay, state.underWay)
        state.order += variants
      }
    }

    deinit { renderer.state.withLock { $0.underWay -= 1 } }

    func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
      steps += 1
      // In one step, so that no two renderings finish where one may.
      let (isFinished, error, padding) = renderer.state.withLock { state in
        let isFinished =
          state.error == nil && steps > 3 && state.finished < state.heldAfter
        if isFinished { state.finished += 1 }
        return (isFinished, state.error, state.padding)
      }
      if let error { throw error }
      guard isFinished else { return nil }
      return variants.map { .success(FakeRenderer.picture($0, of: bytes, padding: padding)) }
    }
  }
}
