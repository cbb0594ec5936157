internal import API

/// Returns the known name that is most similar to a misspelled one; nil if none is similar.
package func suggestedName(for name: String, among names: [String]) -> String? {
  Suggestion.name(for: name, among: names)
}

extension Suggestion {
  /// The end of an error message, such as `, did you mean timeout?`; empty if no name is similar.
  static func text(for name: String, among names: [String]) -> String {
    self.name(for: name, among: names).map { ", did you mean \($0)?" } ?? ""
  }
}
