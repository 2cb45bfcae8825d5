// A profile as JSON. Its text becomes a small tree that keeps the order of names, refuses one that stands
// twice, and is neither deep nor large; the walk over it knows the forms that tools write.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/flat_json.h"
#include "base/quoted.h"
#include "profile/readers.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxJsonBytes = std::size_t{4} << 20, kMaxDepth = 8, kMaxKeyBytes = 4096;
constexpr std::size_t kMaxMembers = 4096;  // per object: kernels, or metrics of one

Error bad_json(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "metrics: " + why);
}

struct Node {
  enum class Kind { nothing, number, text, object, array } kind = Kind::nothing;
  std::string name, text;
  double number = 0;
  std::vector<Node> members = {};

  const Node* find(std::string_view member) const {
    const auto found =
        std::find_if(members.begin(), members.end(), [&](const Node& one) { return one.name == member; });
    return found == members.end() ? nullptr : &*found;
  }
  const char* kind_in_words() const {
    constexpr const char* kWords[] = {"nothing", "a number", "text", "an object", "an array"};
    return kWords[static_cast<int>(kind)];
  }
};

// The events of nlohmann::json::sax_parse, which neither recurses nor throws. `failure` says why it stopped.
struct Tree {
  Node root;
  std::vector<Node*>
      open;  // innermost last; an array or object's members do not grow while one of them is open
  std::string name, failure;

  bool stop(std::string why) {
    if (failure.empty()) failure = std::move(why);
    return false;
  }
  bool add(Node node) {
    if (open.empty()) {
      root = std::move(node);
      if (root.kind >= Node::Kind::object) open.push_back(&root);
      return true;
    }
    Node& parent = *open.back();
    node.name = std::exchange(name, {});
    parent.members.push_back(std::move(node));
    if (parent.members.back().kind < Node::Kind::object) return true;
    if (open.size() == kMaxDepth)
      return stop(fmt::format("nests lists and objects more than {} deep", kMaxDepth));
    open.push_back(&parent.members.back());
    return true;
  }
  bool number(double value) { return add({Node::Kind::number, {}, {}, value}); }

  bool null() { return add({}); }
  bool boolean(bool) { return add({}); }
  bool number_integer(std::int64_t value) { return number(static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) { return number(value); }
  bool string(std::string& value) { return add({Node::Kind::text, {}, value}); }
  bool binary(nlohmann::json::binary_t&) { return stop("is not JSON"); }
  bool start_object(std::size_t) { return add({Node::Kind::object, {}, {}}); }
  bool start_array(std::size_t) { return add({Node::Kind::array, {}, {}}); }
  bool close() {
    open.pop_back();
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& key) {
    if (key.empty() || key.size() > kMaxKeyBytes)
      return stop(fmt::format("holds a name of {} bytes; 1 to {} are allowed", key.size(), kMaxKeyBytes));
    if (has_control_character(key)) return stop("a name holds a control character");
    if (open.back()->find(key))
      return stop(fmt::format("{}{} stands there twice", convtune::quoted(key),
                              open.back()->name.empty() ? "" : " of " + convtune::quoted(open.back()->name)));
    if (open.back()->members.size() == kMaxMembers)
      return stop(fmt::format("has more than {} names in one object", kMaxMembers));
    name = key;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    const std::string& last = open.empty() ? std::string() : open.back()->name;
    return stop(fmt::format("is not JSON at byte {}{}", position,
                            last.empty() ? "" : ", in or after " + convtune::quoted(last)));
  }
};

// Python writes NaN, Infinity and -Infinity, which JSON does not have: an empty text, as long, for each.
std::string without_nan(std::string_view json) {
  std::string text(json);
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\') ++i;
    if (quoted) continue;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"})
      if (std::string_view(text).substr(i).starts_with(word)) {
        std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(i), word.size(), ' ');
        text[i] = text[i + 1] = '"';
        i += word.size() - 1;
        break;
      }
  }
  return text;
}

const std::string* name_in(const Node& node) {
  if (node.kind != Node::Kind::object) return nullptr;
  for (const std::string_view key : {"kernel", "kernel_name", "Kernel Name", "Function Name", "Name", "name"})
    if (const Node* const found = node.find(key); found && found->kind == Node::Kind::text)
      return &found->text;
  return nullptr;
}

class Walk {
 public:
  RawProfile profile{"metrics", false};

  void top(const Node& node) {
    if (node.kind == Node::Kind::array) {
      for (const Node& one : node.members) named_launch(one);
      return;
    }
    if (node.kind != Node::Kind::object)
      throw bad_json(fmt::format("the text is {}, and must be an object of kernels", node.kind_in_words()));
    if (const Node* const inner = node.find("kernels"); inner && holds_kernels(*inner)) return top(*inner);
    if (name_in(node)) return named_launch(node);
    if (holds_metrics(node)) return launch(node, "unnamed kernel");
    for (const Node& kernel : node.members) {
      if (kernel.kind == Node::Kind::object)
        launch(kernel, kernel.name);
      else if (kernel.kind == Node::Kind::array)
        for (const Node& one : kernel.members) {
          if (one.kind != Node::Kind::object) throw not_metrics(one, kernel.name);
          launch(one, kernel.name);
        }
      else if (kernel.kind != Node::Kind::nothing)
        throw not_metrics(kernel, kernel.name);
    }
  }

 private:
  static Error not_metrics(const Node& node, const std::string& kernel) {
    return bad_json(fmt::format("kernel {} is {}, and must be an object of metrics", convtune::quoted(kernel),
                                node.kind_in_words()));
  }
  static bool holds_kernels(const Node& node) {
    const auto is_kernel = [&](const Node& one) {
      return node.kind == Node::Kind::array ? name_in(one) != nullptr : one.kind >= Node::Kind::object;
    };
    return node.kind >= Node::Kind::object && !node.members.empty() &&
           std::all_of(node.members.begin(), node.members.end(), is_kernel);
  }
  static bool holds_metrics(const Node& node) {
    return std::any_of(node.members.begin(), node.members.end(),
                       [](const Node& one) { return find_metric(one.name, {}) != nullptr; });
  }

  void named_launch(const Node& node) {
    if (node.kind != Node::Kind::object)
      throw bad_json(fmt::format("a launch is {}, and must be an object of metrics", node.kind_in_words()));
    const std::string* const name = name_in(node);
    if (!name) throw bad_json("a launch names no kernel: it needs a \"kernel\"");
    launch(node, *name);
  }

  void launch(const Node& node, const std::string& kernel) {
    const std::string* const own = name_in(node);
    const std::string& name = own ? *own : kernel;
    // A record for each metric, as ncu's table has lines: those of one launch stand one after the other.
    const Node *const metric = node.find("Metric Name"), *const value = node.find("Metric Value");
    if (metric && value && metric->kind == Node::Kind::text) {
      const Node* const id = node.find("ID");
      const std::string which = name + '\n' + (id ? id->text + fmt::format("{}", id->number) : "");
      if (profile.empty() || which != launch_) profile.launch(name);
      launch_ = which;
      const Node* const unit = node.find("Metric Unit");
      return add(*value, metric->text, unit ? unit->text : "");
    }
    launch_.clear();
    profile.launch(name);
    members(node);
  }

  void members(const Node& node) {
    for (const Node& one : node.members) {
      const Node* const value = one.find("value");
      if (one.kind == Node::Kind::object && value) {
        const Node* const unit = one.find("unit");
        add(*value, one.name, unit ? unit->text : "");
      } else if (one.kind == Node::Kind::object) {
        members(one);  // "metrics", or a section of them
      } else if (one.kind == Node::Kind::array && one.name == "metrics") {
        for (const Node& metric : one.members) listed(metric);
      } else {
        add(one, one.name, "");
      }
    }
  }

  // {"name": "launch__grid_size", "value": 128, "unit": "block"}
  void listed(const Node& metric) {
    const Node* name = metric.find("name");
    if (!name) name = metric.find("metric");
    const Node* const value = metric.find("value");
    const Node* const unit = metric.find("unit");
    if (name && value) add(*value, name->text, unit ? unit->text : "");
  }

  void add(const Node& value, const std::string& name, const std::string& unit) {
    if (value.kind == Node::Kind::number)
      profile.add(name, unit, value.number);
    else if (value.kind == Node::Kind::text)
      profile.add(name, unit, value.text);
    else if (value.kind == Node::Kind::array && find_metric(name, {}))
      throw bad_json(fmt::format("metric {} is an array, and must be a number", convtune::quoted(name)));
  }

  std::string launch_;
};

}  // namespace

RawProfile read_json(std::string_view json) {
  if (json.size() > kMaxJsonBytes)
    throw bad_json(fmt::format("has {} bytes of JSON; at most {} are read", json.size(), kMaxJsonBytes));
  // nlohmann takes a zero byte for the end of the text, and would not look at what follows.
  if (const auto zero = json.find('\0'); zero != json.npos)
    throw bad_json(fmt::format("is not JSON at byte {}", zero + 1));
  Tree tree;
  const std::string text = without_nan(json);
  if (!nlohmann::json::sax_parse(text, &tree) || !tree.failure.empty())
    throw bad_json(tree.failure.empty() ? "is not JSON" : tree.failure);
  Walk walk;
  walk.top(tree.root);
  return std::move(walk.profile);
}

}  // namespace convtune
