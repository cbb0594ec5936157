extension Configuration {
  /// The keys that are set and have no effect in this version: what they are for comes later, and the operator must not
  /// believe otherwise.
  var unusedKeys: [String] {
    let defaults = Configuration()
    let later: [(String, Bool)] = [
      ("fetch.max_per_host", fetch.maxPerHost != defaults.fetch.maxPerHost),
      ("fetch.rate_per_host", fetch.ratePerHost != defaults.fetch.ratePerHost),
      ("cache", cache != defaults.cache),
      ("storage.partials", storage.partials != defaults.storage.partials),
      ("sources.local_root", sources != defaults.sources),
      ("placeholders", placeholders != defaults.placeholders),
      ("view", view != defaults.view),
    ]
    return later.filter(\.1).map(\.0)
  }
}
