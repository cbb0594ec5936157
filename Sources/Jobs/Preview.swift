/// The picture so far, of an image that is still on its way: at its final dimensions, oriented as it will be.
public struct Preview: Sendable, Equatable {
  /// A file of ``format``.
  public var bytes: [UInt8]
  /// JPEG for scans of a JPEG, PNG for passes of a PNG.
  public var format: ImageFormat
  /// How many of the image's scans or passes it shows, from 1.
  public var scan: Int

  /// A preview.
  public init(bytes: [UInt8], format: ImageFormat, scan: Int) {
    self.bytes = bytes
    self.format = format
    self.scan = scan
  }
}

/// When the next preview of a load may be begun.
///
/// Half a second lies between two, and between the first byte and the first one: what comes faster needs none. One that
/// was long in the making is followed by a pause of eight times as long, so that previews never take more than a ninth
/// of a thread however large the picture is and however many scans it has.
struct PreviewPace {
  typealias Instant = ContinuousClock.Instant

  static let interval = Duration.milliseconds(500)
  static let pausePerWork = 8

  /// Not before this moment.
  private(set) var due: Instant

  init(from start: Instant) { due = start + Self.interval }

  /// One was finished, or given up.
  mutating func made(by end: Instant, computing work: Duration) {
    due = end + max(Self.interval, work * Self.pausePerWork)
  }
}
