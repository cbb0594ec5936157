internal import Jobs

/// The format that the first bytes of a file show.
enum ImageSignature: Equatable {
  /// A supported format.
  case decodable(ImageFormat)
  /// Another format, with its name if it is known.
  case other(name: String?)
  /// More bytes are needed.
  case undecided
  /// The bytes end within the signature of a supported format.
  case cutShort

  /// How many bytes are inspected at most.
  static let length = 256

  /// - Parameter isWhole: whether no more bytes will arrive.
  init(of bytes: UnsafeBufferPointer<UInt8>, isWhole: Bool) {
    let start = Array(bytes.prefix(Self.length))
    if let format = ImageFormat.allCases.first(where: { $0.traits.signature.matches(start) }) {
      self = .decodable(format)
    } else if start.count < Self.length, !isWhole {
      // A name is given only once all these bytes are present, so that it does not depend on how the bytes arrive.
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
