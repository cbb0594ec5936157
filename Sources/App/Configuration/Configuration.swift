package import API
package import Engine
package import Fetch
package import HTTP
package import Isolation
internal import Settings

/// All settings of the service: those of the modules, and the sections of the service itself. `Configuration.keys` lists
/// every key by name.
///
/// A new value has the defaults. ``load(file:environment:flags:)`` applies a file, the environment and flags.
package struct Configuration: Sendable {
  package var http = HTTPServer.Configuration()
  package var api = APIConfiguration()
  package var engine = JobEngine.Configuration()
  package var webhookRules = WebhookRules()
  package var fetcher = CurlFetcher.Configuration()
  package var decoders = IsolatedCodec.Configuration()

  package var server = Server()
  package var auth = Auth()
  package var decode = Decode()
  package var webhooks = Webhooks()
  package var destinations: [Destination] = []
  package var storage = Storage()
  package var sources = Sources()
  package var placeholders = Placeholders()
  package var view = View()
  package var cluster = Cluster()
  package var log = Log()
  package var tracing = Tracing()

  package init() {
    fetcher.userAgent = "imagefetch/\(App.version)"
    webhooks.receivers.allowPorts = [443]
  }

  /// Sets all keys of some sections to their defaults.
  mutating func reset(_ sections: String...) {
    let defaults = Configuration()
    for key in Configuration.keys where sections.contains(String(key.section)) {
      key.copy(defaults, &self)
    }
  }
}

extension Configuration: Equatable {
  /// Compares the values of all keys, and the contents of the files that they name.
  package static func == (a: Configuration, b: Configuration) -> Bool {
    keys.allSatisfy { $0.isEqual(a, b) } && a.auth.filedTokens == b.auth.filedTokens
      && a.webhooks.fileSecrets == b.webhooks.fileSecrets
  }
}
