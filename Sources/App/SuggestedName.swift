internal import API

/// The name that somebody may have meant who wrote one that is not there; nil when none is near.
public func suggestedName(for name: String, among names: [String]) -> String? {
  Suggestion.name(for: name, among: names)
}

extension Suggestion {
  /// `, did you mean timeout?`, to end a line, or nothing when no name is near.
  static func text(for name: String, among names: [String]) -> String {
    self.name(for: name, among: names).map { ", did you mean \($0)?" } ?? ""
  }
}
