internal import Jobs

/// What the first bytes tell about a file's format.
enum ImageSignature: Equatable {
  /// A format of ours.
  case decodable(ImageFormat)
  /// Another one; its name where it is known.
  case other(name: String?)
  /// More bytes will tell.
  case undecided
  /// The bytes end within a signature of ours.
  case cutShort

  /// As many bytes as are ever looked at.
  static let length = 256

  /// - Parameter isWhole: no more bytes will come.
  init(of bytes: UnsafeBufferPointer<UInt8>, isWhole: Bool) {
    let start = Array(bytes.prefix(Self.length))
    if let format = ImageFormat.allCases.first(where: { $0.traits.signature.matches(start) }) {
      self = .decodable(format)
    } else if start.count < Self.length, !isWhole {
      // Names are told only with all the bytes that count, so that they don't depend on how bytes arrive.
      self = .undecided
    } else if !start.isEmpty,
      ImageFormat.allCases.contains(where: { $0.traits.signature.isBegun(start) })
    {
      self = .cutShort
    } else {
      self = .other(name: KnownFormat.name(start))
    }
  }
}
