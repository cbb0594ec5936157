extension Configuration {
  /// The keys that are set and have no effect in this version: what they are for comes later, and the operator must not
  /// believe otherwise.
  var unusedKeys: [String] {
    let defaults = Configuration()
    let later: [(String, Bool)] = [
      ("placeholders", placeholders != defaults.placeholders),
      ("view", view != defaults.view),
    ]
    return later.filter(\.1).map(\.0)
  }
}
