/// Tags are compared byte by byte, as stores compare them. `==` compares characters, and so treats two
/// Unicode encodings of one character as equal.
extension [String] {
  /// Whether the array contains the tag.
  package func contains(tag: String) -> Bool { contains { $0.utf8.elementsEqual(tag.utf8) } }

  /// Whether both arrays hold the same tags in the same order.
  package func areSameTags(as others: [String]) -> Bool {
    elementsEqual(others) { $0.utf8.elementsEqual($1.utf8) }
  }
}
