/// Labels are told apart by their bytes, as stores keep and find them: to `==` two encodings of one character are the same.
extension [String] {
  /// Whether the label is among these.
  package func contains(tag: String) -> Bool { contains { $0.utf8.elementsEqual(tag.utf8) } }

  /// Whether these are the same labels in the same order.
  package func areSameTags(as others: [String]) -> Bool {
    elementsEqual(others) { $0.utf8.elementsEqual($1.utf8) }
  }
}
