/// What an image's bytes are kept under: their digest, and which of the times this is that they are.
///
/// Bytes that come back once they were let go of are kept under a new generation. A removal that was asked for before,
/// and reaches the store late, whoever asked for it, removes nothing but what was to go.
public struct ImageName: Hashable, Sendable {
  /// Of the bytes.
  public let digest: ImageDigest
  /// 0 where one process alone removes bytes.
  public let generation: Int64

  /// A name.
  public init(_ digest: ImageDigest, generation: Int64 = 0) {
    self.digest = digest
    self.generation = generation
  }
}

/// An image that is kept.
public struct KeptImage: Sendable, Equatable {
  /// What its bytes are kept under.
  public let name: ImageName
  /// How many there are.
  public let bytes: Int

  /// Of so many bytes.
  public init(_ name: ImageName, bytes: Int) {
    self.name = name
    self.bytes = bytes
  }
}
