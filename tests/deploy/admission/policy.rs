//! Evaluates the chart's admission policies as the API server does (k8s.io/apiserver,
//! plugin/policy/validating): conditions, then variables, then validations. An error refuses the request.

use std::collections::HashMap;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cel::{Context, Value as Answer, parser::Parser};
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    Validation, Variable,
};
use serde_json::{Value, json};

use crate::render;

/// The only user to whom the policies apply.
const AGENT: &str = "system:serviceaccount:sandprobe:sandprobe";
/// The claim in which the API server names the node of a token's pod.
pub(super) const CLAIM: &str = "authentication.kubernetes.io/node-name";

/// A request as the API server passes it to admission: the whole object after the request, and before it.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) resource: &'static str,
    pub(super) user: &'static str,
    pub(super) extra: Option<Value>,
    pub(super) object: Value,
    pub(super) old: Value,
}

impl Request {
    pub(super) fn of_node_1(resource: &'static str, object: Value, old: Value) -> Self {
        Self { resource, user: AGENT, extra: Some(json!({ CLAIM: ["node-1"] })), object, old }
    }

    fn operation(&self) -> &'static str {
        if self.old.is_null() { "CREATE" } else { "UPDATE" }
    }
}

/// The chart's policies. The bindings of all of them say Deny.
pub(super) struct Policies(Vec<ValidatingAdmissionPolicy>);

impl Policies {
    pub(super) fn rendered() -> Result<Self> {
        let objects = render::rendered(&["kubernetes.events=true", "kubernetes.condition=true"])?;
        let of = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind).cloned();
        let policies: Vec<ValidatingAdmissionPolicy> = of("ValidatingAdmissionPolicy")
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()
            .context("a policy")?;
        let bindings: Vec<ValidatingAdmissionPolicyBinding> = of("ValidatingAdmissionPolicyBinding")
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()
            .context("a binding")?;
        for policy in &policies {
            let name = &policy.metadata.name;
            let mut specs = bindings.iter().filter_map(|it| it.spec.as_ref());
            let bound = specs.find(|it| it.policy_name == *name).with_context(|| format!("{name:?}"))?;
            ensure!(bound.validation_actions == Some(vec!["Deny".to_owned()]), "{bound:?}");
            ensure!(bound.match_resources.is_none() && bound.param_ref.is_none(), "{bound:?}");
        }
        Ok(Self(policies))
    }

    /// Returns the policies that apply to such requests.
    pub(super) fn about(
        &self,
        operation: &str,
        resource: &str,
    ) -> impl Iterator<Item = &ValidatingAdmissionPolicy> {
        self.0.iter().filter(move |policy| {
            let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
            let rules = constraints.and_then(|it| it.resource_rules.as_deref()).unwrap_or_default();
            rules.iter().any(|rule| is_about(rule, operation, resource))
        })
    }

    /// Returns why a request is refused: the messages of all policies, sorted, and the errors of expressions
    /// that fail.
    pub(super) fn refuse(&self, request: &Request) -> Result<Vec<String>> {
        let mut messages = Vec::new();
        for policy in self.about(request.operation(), request.resource) {
            let spec = policy.spec.as_ref().context("a policy without a spec")?;
            ensure!(spec.failure_policy.as_deref() == Some("Fail"), "an expression that fails admits all");
            let conditions = spec.match_conditions.as_deref().unwrap_or_default();
            let variables = spec.variables.as_deref().unwrap_or_default();
            let validations = spec.validations.as_deref().unwrap_or_default();
            messages.extend(judge(request, conditions, variables, validations)?);
        }
        messages.sort();
        Ok(messages)
    }
}

fn is_about(rule: &NamedRuleWithOperations, operation: &str, resource: &str) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|it| it == wanted);
    has(&rule.api_groups, "")
        && has(&rule.api_versions, "v1")
        && has(&rule.operations, operation)
        && has(&rule.resources, resource)
}

fn judge(
    request: &Request,
    conditions: &[MatchCondition],
    variables: &[Variable],
    validations: &[Validation],
) -> Result<Vec<String>> {
    let mut user = json!({ "username": request.user });
    if let Some(extra) = &request.extra {
        user["extra"] = extra.clone();
    }
    let mut context = Context::default();
    let add = |context: &mut Context<'_, '_>, name: &str, value: &Value| {
        context.add_variable(name, value).map_err(|why| anyhow!("{name}: {why}"))
    };
    add(&mut context, "object", &request.object)?;
    add(&mut context, "oldObject", &request.old)?;
    add(&mut context, "request", &json!({ "userInfo": user, "operation": request.operation() }))?;
    for condition in conditions {
        match evaluate(&condition.expression, &context)? {
            Ok(Answer::Bool(true)) => {}
            Ok(Answer::Bool(false)) => return Ok(Vec::new()),
            other => bail!("the condition {} gives {other:?}", condition.name),
        }
    }
    // The API server evaluates a variable when it is used. If it fails, the expression that uses it fails
    // too.
    let mut values = HashMap::new();
    for variable in variables {
        if let Ok(value) = evaluate(&variable.expression, &context)? {
            values.insert(variable.name.clone(), value);
        }
    }
    context.add_variable_from_value("variables", values);
    let mut refused = Vec::new();
    for validation in validations {
        let message = validation.message.clone().context("a validation without a message")?;
        match evaluate(&validation.expression, &context)? {
            Ok(Answer::Bool(true)) => {}
            Ok(Answer::Bool(false)) => refused.push(message),
            Ok(other) => bail!("{message:?} gives {other:?}"),
            Err(_) => refused.push(format!("{message} (failed)")),
        }
    }
    Ok(refused)
}

/// Returns the value of an expression, or why it fails. An expression that is not CEL fails the test.
fn evaluate(expression: &str, context: &Context<'_, '_>) -> Result<Result<Answer, String>> {
    let parsed = Parser::new().enable_optional_syntax(true).parse(expression);
    let parsed = parsed.map_err(|why| anyhow!("{expression}\n{why}"))?;
    Ok(Answer::resolve(&parsed, context).map_err(|why| why.to_string()))
}
