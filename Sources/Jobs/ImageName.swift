/// The name under which an image's bytes are stored: their digest and a generation.
///
/// When bytes are stored again after they were released, they get a new generation. Therefore a late removal,
/// requested by any instance, deletes only the old copy.
public struct ImageName: Hashable, Sendable {
  /// The digest of the bytes.
  public let digest: ImageDigest
  /// 0 if only one process removes bytes.
  public let generation: Int64

  public init(_ digest: ImageDigest, generation: Int64 = 0) {
    self.digest = digest
    self.generation = generation
  }
}

/// A stored image.
public struct KeptImage: Sendable, Equatable {
  public let name: ImageName
  /// The number of bytes.
  public let bytes: Int

  public init(_ name: ImageName, bytes: Int) {
    self.name = name
    self.bytes = bytes
  }
}
