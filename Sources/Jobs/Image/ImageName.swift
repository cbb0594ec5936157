/// The name under which an image's bytes are stored: their digest and a generation.
///
/// When bytes are stored again after they were released, they get a new generation. Therefore a late removal,
/// requested by any instance, deletes only the old copy.
package struct ImageName: Hashable, Sendable {
  /// The digest of the bytes.
  package let digest: ImageDigest
  /// 0 if only one process removes bytes.
  package let generation: Int64

  package init(_ digest: ImageDigest, generation: Int64 = 0) {
    self.digest = digest
    self.generation = generation
  }
}

/// A stored image.
package struct KeptImage: Sendable, Equatable {
  package let name: ImageName
  /// The number of bytes.
  package let bytes: Int

  package init(_ name: ImageName, bytes: Int) {
    self.name = name
    self.bytes = bytes
  }
}
